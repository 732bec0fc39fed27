// SPDX-License-Identifier: Apache-2.0
// The picture of memory over time: the stack of layers, its axes, the limit, the phases, the peak.
// Round distances between grid lines, about `lines` of them up to `highest`.
function tickStep(highest, lines) {
  const least = highest / lines;
  const unit = 2 ** (10 * Math.floor(Math.log2(Math.max(least, 1)) / 10));
  for (const times of [1, 2, 4, 5, 10, 20, 25, 50, 100, 128, 200, 256, 512]) {
    if (times * unit >= least) return times * unit;
  }
  return 1024 * unit;
}

// Draws `chart` between the moments `from` and `to` into `plot`, as high as `now` beside it.
class TimelinePicture {
  constructor(chart) {
    this.chart = chart;
    this.first = chart.at[0];
    this.last = chart.at[chart.at.length - 1];
    this.from = this.first;
    this.to = this.last;
  }

  x(value) {
    const room = this.width - this.left - this.right;
    return this.left + (room * (value - this.from)) / Math.max(1e-9, this.to - this.from);
  }

  y(bytes) { return this.bottom - ((this.bottom - this.top) * bytes) / this.highest; }

  draw() {
    const {chart} = this;
    this.width = Math.max(240, this.plot.clientWidth);
    this.left = 58;
    this.right = 8;
    this.top = 22;
    const strip = chart.phases.length > 0 ? 46 : 26;
    const beside = this.now.offsetTop < this.plot.offsetTop + 20;
    const height = beside ? Math.max(400, Math.min(640, this.now.offsetHeight - 4)) : 320;
    this.bottom = height - strip;
    this.stack();
    const svg = shape("svg", {height, viewBox: `0 0 ${this.width} ${height}`, "aria-hidden": true});
    svg.append(this.patterns(), this.grid());
    for (const area of this.areas()) svg.append(area);
    svg.append(this.limit(), this.phases(height), this.peakMark());
    this.cursor = shape("line", {class: "cursor", y1: this.top - 6, y2: this.bottom + 4});
    this.dot = shape("circle", {class: "cursor-dot", r: 4});
    svg.append(this.cursor, this.dot);
    this.plot.replaceChildren(svg);
  }

  // Upper edges of the shown layers, bottom to top, and the height of the axis.
  stack() {
    const {chart} = this;
    const length = chart.at.length;
    let below = new Float64Array(length);
    this.edges = [];
    for (const layer of chart.layers) {
      const above = below.slice();
      if (layer.shown) for (let i = 0; i < length; ++i) above[i] += layer.bytes[i];
      this.edges.push({layer, below, above});
      below = above;
    }
    this.drawn = this.momentsToDraw();
    let highest = common_top;
    for (let i = 0; i < length; ++i) highest = Math.max(highest, below[i]);
    const limit = report.limit ? report.limit.bytes : 0;
    // A limit far above the run would flatten it.
    this.limit_shown = limit > 0 && limit < 2.2 * highest;
    if (this.limit_shown) highest = Math.max(highest, limit);
    this.highest = highest * 1.04;
  }

  // Of all moments in view, the lowest and the highest of each half pixel: no more can be seen.
  momentsToDraw() {
    const {at} = this.chart;
    const tensors = this.edges.filter(({layer}) => isAllocated(layer)).pop();
    const height = (tensors || this.edges[this.edges.length - 1]).above;
    const first = momentAt(this.chart, this.from);
    const last = momentAt(this.chart, this.to);
    const drawn = [first];
    for (let i = first + 1; i < last;) {
      const column = Math.floor(2 * this.x(at[i]));
      let low = i;
      let high = i;
      let end = i;
      for (; end < last && Math.floor(2 * this.x(at[end])) === column; ++end) {
        if (height[end] < height[low]) low = end;
        if (height[end] > height[high]) high = end;
      }
      drawn.push(Math.min(low, high));
      if (low !== high) drawn.push(Math.max(low, high));
      // What the next column begins with.
      if (end - 1 > Math.max(low, high)) drawn.push(end - 1);
      i = end;
    }
    if (last > first) drawn.push(last);
    return drawn;
  }

  patterns() {
    const hatch = (id, turn, width, distance) => shape("pattern", {
      id, width: distance, height: distance, patternUnits: "userSpaceOnUse",
      patternTransform: `rotate(${turn})`,
    }, shape("line", {y2: distance, stroke: "var(--c-cache)", "stroke-width": width}));
    return shape("defs", {}, hatch("hatch-cache", 45, 2.2, 6), hatch("hatch-context", -45, 1.2, 7));
  }

  grid() {
    const group = shape("g");
    const step = tickStep(this.highest, 5);
    for (let bytes = 0; bytes <= this.highest; bytes += step) {
      const y = Math.round(this.y(bytes)) + 0.5;
      group.append(shape("line", {
        class: bytes === 0 ? "axis" : "grid", x1: this.left, x2: this.width - this.right, y1: y, y2: y,
      }));
      const text = bytes === 0 ? "0" : formatTick(bytes);
      group.append(shape("text", {x: this.left - 8, y: y + 4, "text-anchor": "end"}, text));
    }
    if (this.chart.axis === "seconds") group.append(...this.secondTicks());
    return group;
  }

  secondTicks() {
    const span = this.to - this.from;
    const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600];
    const step = steps.find((s) => span / s <= this.width / 90) || span;
    const ticks = [];
    for (let x = Math.ceil(this.from / step) * step; x <= this.to + 1e-9; x += step) {
      const text = step < 1 ? fixed(x, 1) + " s" : x < 60 ? Math.round(x) + " s" : formatSeconds(x);
      const anchor = this.x(x) > this.width - 30 ? "end" : "middle";
      ticks.push(shape("text", {x: this.x(x), y: this.bottom + 16, "text-anchor": anchor}, text));
    }
    return ticks;
  }

  // The edge as "x y" texts. Memory stays as it is until the next event; between samples of a
  // watched process it is unknown, and a straight line is drawn.
  path(edge, backwards) {
    const {at, axis} = this.chart;
    const steps = axis === "events";
    const parts = [];
    const round = (value) => Math.round(value * 10) / 10;
    let x = 0;
    let y = NaN;
    for (const i of this.drawn) {
      const next_x = round(this.x(Math.max(this.from, at[i])));
      const next_y = round(this.y(edge[i]));
      if (next_y !== y) {
        // A flat stretch is its two ends.
        if (parts.length > 0) parts.push((steps ? next_x : x) + " " + y);
        parts.push(next_x + " " + next_y);
      }
      x = next_x;
      y = next_y;
    }
    parts.push(round(this.x(this.to)) + " " + y);
    if (backwards) parts.reverse();
    return parts;
  }

  areas() {
    const drawn = [];
    for (const {layer, below, above} of this.edges) {
      if (!layer.shown) continue;
      const outline = [...this.path(above, false), ...this.path(below, true)];
      const hatched = layer.component === "cache" || layer.component === "context";
      drawn.push(shape("path", {
        class: hatched ? "hatch-" + layer.component : "area " + layer.look,
        d: "M" + outline.join("L") + "Z",
      }));
    }
    const line = (wanted, look) => {
      const edge = this.edges.filter(({layer}) => layer.shown && wanted(layer)).pop();
      if (edge) drawn.push(shape("path", {class: look, d: "M" + this.path(edge.above, false).join("L")}));
    };
    if (this.chart.axis === "events") {
      line(() => true, "edge outer");
      line(isReserved, "edge outer");
    }
    line(isAllocated, "edge");
    return drawn;
  }

  limit() {
    const group = shape("g");
    if (!this.limit_shown) return group;
    const y = Math.round(this.y(report.limit.bytes)) + 0.5;
    group.append(
      shape("line", {class: "limit", x1: this.left, x2: this.width - this.right, y1: y, y2: y}),
      shape("text", {class: "limit-text", x: this.left + 6, y: y - 6},
        report.limit.name + ": " + formatMiB(report.limit.bytes)));
    return group;
  }

  phases(height) {
    const group = shape("g");
    const top = this.bottom + (this.chart.axis === "seconds" ? 22 : 8);
    this.bands = [];
    this.chart.phases.forEach((phase, number) => {
      if (phase.to <= this.from || phase.from >= this.to) return;
      const left = this.x(Math.max(this.from, phase.from));
      const width = Math.max(0.5, this.x(Math.min(this.to, phase.to)) - left);
      const band = shape("rect", {class: number % 2 ? "phase odd" : "phase", x: left, y: top, width, height: 18},
        shape("title", {}, phaseWords(phase)));
      group.append(band);
      this.bands.push({phase, band});
      if (width > phase.name.length * 5.8 + 5) {
        group.append(shape("text", {class: "phase-text", x: left + width / 2, y: top + 13}, phase.name));
      }
    });
    for (const {step, from, to} of stepsOf(this.chart)) {
      const left = this.x(Math.max(this.from, from));
      const right = this.x(Math.min(this.to, to));
      if (right - left < 44) continue;
      group.append(shape("text", {class: "step-text", x: (left + right) / 2, y: height - 4}, "step " + step));
    }
    return group;
  }

  // Height of what the peak is a peak of: the tensors, or the lowest layer of a recording.
  peakHeight(moment) {
    if (this.chart.axis === "seconds") return this.edges[0].above[moment];
    let bytes = 0;
    for (const {layer, above} of this.edges) if (isAllocated(layer)) bytes = above[moment];
    return bytes;
  }

  peakBytes() {
    const {chart} = this;
    if (chart.axis === "seconds") return chart.layers[0].bytes[chart.peak];
    return sumOf(chart, chart.peak, isAllocated);
  }

  peakMark() {
    const {chart} = this;
    const group = shape("g");
    const value = chart.at[chart.peak];
    if (value < this.from || value > this.to) return group;
    const x = this.x(value);
    const y = this.y(this.peakHeight(chart.peak));
    const on_left = x > this.width * 0.6;
    group.append(
      shape("line", {class: "peak-line", x1: x, x2: x, y1: y, y2: this.bottom}),
      shape("circle", {class: "peak-dot", cx: x, cy: y, r: 4}),
      shape("text", {
        class: "peak-text", x: x + (on_left ? -10 : 10), y: Math.max(12, y - 9),
        "text-anchor": on_left ? "end" : "start",
      }, "peak " + formatMiB(this.peakBytes())));
    return group;
  }
}
