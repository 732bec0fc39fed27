// SPDX-License-Identifier: Apache-2.0
// Memory over time for its reader: the list of layers, choices, and a cursor that says what is alive.
const kAliveShown = 7;
const kMostStepButtons = 6;

class Timeline extends TimelinePicture {
  constructor(section, chart) {
    super(chart);
    this.section = section;
    this.pinned = chart.peak;
    this.moment = chart.peak;
    this.build();
    this.listen();
    this.draw();
    // Called once at the start too: the list beside the plot is filled by then, and gives the height.
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  build() {
    const {chart, section} = this;
    const steps = stepsOf(chart);
    if (steps.length > 1) addToHeading(section, this.stepChoice(steps));
    else addToHeading(section);
    this.plot = element("div", {
      class: "plot", tabindex: 0, role: "slider", "aria-label": "Moment of the run",
      "aria-orientation": "horizontal", "aria-valuemin": 0, "aria-valuemax": chart.at.length - 1,
    });
    this.title = element("h3");
    this.where = element("p", {class: "where"});
    this.sums = element("div", {class: "sums"});
    this.list = element("ul", {class: "layers", "aria-label": "Layers: press to hide or show"});
    this.values = chart.layers.map((layer) => this.addLayer(layer));
    const now = this.now = element("div", {class: "now"}, this.title, this.where, this.sums, this.list);
    if (chart.blocks) {
      this.alive = element("ol", {class: "alive"});
      now.append(element("h4", {}, "Largest alive"), this.alive);
    }
    section.append(element("div", {class: "chart-body"}, this.plot, now));
    const hint = element("p", {class: "hint keys"});
    const phases = chart.phases.length > 0
      ? "<kbd>Page Up</kbd> <kbd>Page Down</kbd> go to the next phase, " : "";
    hint.innerHTML = "Point to look, click to stay. <kbd>\u2190</kbd> <kbd>\u2192</kbd> move, " +
      phases + "<kbd>P</kbd> goes to the peak.";
    section.append(hint);
  }

  stepChoice(steps) {
    const look = (value) => {
      const range = steps.find((step) => String(step.step) === value);
      this.from = range ? range.from : this.first;
      this.to = range ? range.to : this.last;
      this.draw();
    };
    const options = [["", "Whole run"], ...steps.map(({step}) => [String(step), "Step " + step])];
    if (steps.length <= kMostStepButtons) return choices("Part of the run", options, "", look);
    const select = element("select", {"aria-label": "Part of the run"},
      ...options.map(([value, text]) => element("option", {value}, text)));
    select.addEventListener("change", () => look(select.value));
    return select;
  }

  // One row of the list, top of the stack first; returns where its value stands.
  addLayer(layer) {
    const value = element("span", {class: "value"});
    const button = element("button", {type: "button", "aria-pressed": true},
      swatch(layer.look), layer.name, value);
    button.addEventListener("click", () => {
      layer.shown = !layer.shown;
      button.setAttribute("aria-pressed", layer.shown);
      this.draw();
    });
    this.list.prepend(element("li", {}, button));
    return value;
  }

  listen() {
    const {plot} = this;
    const show = (event) => this.show(this.momentUnder(event));
    plot.addEventListener("pointermove", show);
    plot.addEventListener("pointerdown", (event) => {
      this.pinned = this.momentUnder(event);
      this.show(this.pinned);
    });
    plot.addEventListener("pointerleave", () => this.show(this.pinned));
    plot.addEventListener("keydown", (event) => {
      const moment = this.momentOfKey(event);
      if (moment === undefined) return;
      event.preventDefault();
      this.pinned = Math.max(0, Math.min(this.chart.at.length - 1, moment));
      this.keepInView();
      this.show(this.pinned);
    });
  }

  momentUnder(event) {
    const box = this.plot.getBoundingClientRect();
    const share = (event.clientX - box.left - this.left) / (this.width - this.left - this.right);
    const x = this.from + Math.max(0, Math.min(1, share)) * (this.to - this.from);
    return momentAt(this.chart, x);
  }

  momentOfKey(event) {
    const far = event.shiftKey ? 25 : 1;
    const x = this.chart.at[this.moment];
    switch (event.key) {
      case "ArrowRight": case "ArrowUp": return this.moment + far;
      case "ArrowLeft": case "ArrowDown": return this.moment - far;
      case "Home": return 0;
      case "End": return this.chart.at.length - 1;
      case "p": case "P": return this.chart.peak;
      case "PageDown": {
        const next = this.chart.phases.find((phase) => phase.to > x);
        return next ? Math.max(this.moment + 1, momentAt(this.chart, next.to)) : undefined;
      }
      case "PageUp": {
        const before = this.chart.phases.filter((phase) => phase.to < x).pop();
        return before ? Math.min(this.moment - 1, momentAt(this.chart, before.to)) : 0;
      }
    }
    return undefined;
  }

  // The keyboard can leave the step that is shown; then the whole run is.
  keepInView() {
    const x = this.chart.at[this.pinned];
    if (x >= this.from && x <= this.to) return;
    const buttons = this.section.querySelectorAll(".choices button");
    const select = this.section.querySelector("select");
    if (buttons.length > 0) buttons[0].click();
    if (select) {
      select.value = "";
      select.dispatchEvent(new Event("change"));
    }
  }

  draw() {
    super.draw();
    this.show(this.moment);
  }

  // ---- What is alive at a moment ----

  show(moment) {
    const {chart} = this;
    this.moment = moment;
    const value = chart.at[moment];
    const inside = value >= this.from && value <= this.to;
    const x = this.x(value);
    this.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    this.dot.setAttribute("visibility", inside ? "visible" : "hidden");
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.dot.setAttribute("cx", x);
    this.dot.setAttribute("cy", this.y(this.peakHeight(moment)));
    const phase = phaseAt(chart, value);
    for (const band of this.bands) band.band.classList.toggle("now", band.phase === phase);

    const when = chart.axis === "seconds" ? formatSeconds(value) : "event " + thousands(value);
    const words = phase ? phaseWords(phase) + ", " + when : when;
    this.title.textContent = (moment === chart.peak ? "Peak: " : "") + words;
    this.where.textContent = this.placeOf(moment);
    const sums = this.sumsAt(moment);
    this.sums.replaceChildren(...sums.flatMap(([name, bytes]) =>
      [element("span", {}, name), element("b", {}, formatMiB(bytes))]));
    chart.layers.forEach((layer, i) => { this.values[i].textContent = formatMiB(layer.bytes[moment]); });
    if (this.alive) this.showAlive(value);
    this.plot.setAttribute("aria-valuenow", moment);
    this.plot.setAttribute("aria-valuetext",
      words + ": " + sums.map(([name, bytes]) => formatMiB(bytes) + " " + name).join(", "));
  }

  placeOf(moment) {
    const {chart} = this;
    if (!chart.module) return "";
    const module = chart.modules[chart.module[moment]];
    const op = chart.ops[chart.op[moment]];
    return module && op ? module + " (" + op + ")" : module || op;
  }

  sumsAt(moment) {
    const {chart} = this;
    if (chart.axis === "seconds") return [["together", sumOf(chart, moment, () => true)]];
    return [
      ["allocated", sumOf(chart, moment, isAllocated)],
      ["reserved", sumOf(chart, moment, isReserved)],
      ["device", sumOf(chart, moment, () => true)],
    ];
  }

  showAlive(event) {
    this.alive.replaceChildren(...aliveAt(this.chart, event, kAliveShown).map((group) => {
      const name = group.path || group.component.replaceAll("_", " ");
      return element("li", {title: group.component.replaceAll("_", " ") + ": " + name},
        swatch("c-" + group.component),
        element("span", {class: "path"}, element("bdi", {}, name)),
        element("span", {class: "value"}, formatMiB(group.bytes)));
    }));
  }
}

for (const section of document.querySelectorAll("[data-chart]")) {
  const chart = decodeChart(report.charts[Number(section.dataset.chart)]);
  if (chart.at.length > 1) new Timeline(section, chart);
  else section.append(element("p", {class: "note"}, "Nothing was recorded over time."));
}
