// SPDX-License-Identifier: Apache-2.0
// The files of this folder are joined in the order that CMakeLists.txt names, and share one scope.
"use strict";
const report = JSON.parse(document.getElementById("headroom-data").textContent);

// An element with attributes and children: element("p", {class: "note"}, "text").
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function shape(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function swatch(look) {
  return element("span", {class: "swatch " + look});
}

// A group of buttons of which one is pressed. `options` are [value, label]; calls `choose` with a
// value when another is pressed.
function choices(label, options, chosen, choose) {
  const group = element("div", {class: "choices", role: "group", "aria-label": label});
  for (const [value, text] of options) {
    const button = element("button", {type: "button", "aria-pressed": value === chosen}, text);
    button.addEventListener("click", () => {
      for (const other of group.children) other.setAttribute("aria-pressed", other === button);
      choose(value);
    });
    group.append(button);
  }
  return group;
}

// The heading of a section gets `more` at its right.
function addToHeading(section, ...more) {
  const heading = section.querySelector("h2");
  const head = element("div", {class: "card-head"});
  heading.replaceWith(head);
  head.append(heading, ...more);
}
