// SPDX-License-Identifier: Apache-2.0
// A chart of the report as arrays: differences summed up, sizes in bytes.

function running(differences, unit = 1) {
  const sums = new Float64Array(differences.length);
  let sum = 0;
  for (let i = 0; i < differences.length; ++i) {
    sum += differences[i];
    sums[i] = sum * unit;
  }
  return sums;
}

// A class of the style sheet for a layer's colour.
function lookOf(layer, number) {
  return layer.component ? "c-" + layer.component : "c-extra-" + (number % 5);
}

function decodeChart(chart) {
  const decoded = {
    ...chart,
    at: running(chart.at, chart.axis === "seconds" ? 0.001 : 1),
    layers: chart.layers.map((layer, number) => ({
      name: layer.name.replaceAll("_", " "),
      component: layer.component,
      look: lookOf(layer, number),
      bytes: running(layer.bytes, chart.unit),
      shown: true,
    })),
    phases: chart.phases.map(([from, to, name, step]) => ({from, to, name, step})),
  };
  if (chart.blocks) decoded.blocks = {...chart.blocks, from: running(chart.blocks.from)};
  return decoded;
}

// Position of the last moment at or before `x`.
function momentAt(chart, x) {
  let low = 0;
  let high = chart.at.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (chart.at[middle] <= x) low = middle;
    else high = middle - 1;
  }
  return low;
}

function sumOf(chart, moment, wanted) {
  let sum = 0;
  for (const layer of chart.layers) if (wanted(layer)) sum += layer.bytes[moment];
  return sum;
}

const isAllocated = (layer) => layer.component !== "cache" && layer.component !== "context";
const isReserved = (layer) => layer.component !== "context";

function phaseAt(chart, x) {
  return chart.phases.find((phase) => x > phase.from && x <= phase.to) ||
    chart.phases.find((phase) => x >= phase.from && x <= phase.to);
}

function phaseWords(phase) {
  return phase.step > 0 ? "step " + phase.step + ", " + phase.name : phase.name;
}

// The largest of what is alive at an event: blocks of one component and module together, layer
// numbers left out.
function aliveAt(chart, event, most) {
  const {from, life, bytes, component, module} = chart.blocks;
  const groups = new Map();
  for (let i = 0; i < from.length && from[i] <= event; ++i) {
    if (life[i] !== 0 && from[i] + life[i] <= event) continue;
    const path = chart.modules[module[i]].replace(/(^|\.)\d+(?=\.|$)/g, "$1*");
    const key = component[i] + " " + path;
    const group = groups.get(key) || {path, component: report.components[component[i]], bytes: 0};
    group.bytes += bytes[i];
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes).slice(0, most);
}

// The steps of a run as ranges of the axis, for a closer look.
function stepsOf(chart) {
  const steps = new Map();
  for (const {from, to, step} of chart.phases) {
    if (step === 0) continue;
    const range = steps.get(step) || {step, from, to};
    range.from = Math.min(range.from, from);
    range.to = Math.max(range.to, to);
    steps.set(step, range);
  }
  return [...steps.values()];
}

function topOf({at, layers}) {
  let top = 1;
  for (let i = 0; i < at.length; ++i) {
    let sum = 0;
    for (const layer of layers) sum += layer.bytes[i];
    top = Math.max(top, sum);
  }
  return top;
}

// What every chart reaches up to at least: where runs stand side by side, the higher one.
const common_top =
  report.one_scale ? Math.max(...report.charts.map((chart) => topOf(decodeChart(chart))), 1) : 1;
