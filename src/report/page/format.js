// SPDX-License-Identifier: Apache-2.0
// Sizes as src/base/bytes.cc writes them.

// `digits` decimals, halves to even as fmt rounds: sizes in binary units often are exact halves.
function fixed(value, digits) {
  const scale = 10 ** digits;
  const scaled = Math.abs(value) * scale;
  const floor = Math.floor(scaled);
  const rest = scaled - floor;
  const rounded = rest > 0.5 || (rest === 0.5 && floor % 2 === 1) ? floor + 1 : floor;
  const text = (rounded / scale).toFixed(digits);
  return value < 0 && rounded > 0 ? "-" + text : text;
}

function thousands(text) {
  const [whole, part] = String(text).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return part === undefined ? grouped : grouped + "." + part;
}

function formatMiB(bytes) {
  const magnitude = Math.abs(bytes);
  if (magnitude < 1024) return bytes + " B";
  if (magnitude < 1048576) return fixed(bytes / 1024, 1) + " KiB";
  return thousands(fixed(bytes / 1048576, 1)) + " MiB";
}

// "2 GiB", "512 MiB": an axis has round numbers.
function formatTick(bytes) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (bytes >= unit) return String(Math.round((bytes / unit) * 100) / 100) + " " + name;
  }
  return bytes + " B";
}

function percent(part, whole) {
  return whole > 0 ? fixed((100 * part) / whole, 1) + " %" : "0.0 %";
}

// "1.2 s", "2 min 5 s"
function formatSeconds(seconds) {
  if (seconds < 60) return fixed(seconds, seconds < 10 ? 2 : 1) + " s";
  const minutes = Math.floor(seconds / 60);
  const rest = Math.floor(seconds % 60);
  if (minutes < 60) return minutes + " min " + rest + " s";
  return Math.floor(minutes / 60) + " h " + (minutes % 60) + " min";
}
