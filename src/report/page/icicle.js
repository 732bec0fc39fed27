// SPDX-License-Identifier: Apache-2.0
// The peak as an icicle: every row divides the one above it. Two orders of the same bytes:
// components and then modules, or modules and then components.
const kRowHeight = 34;
const kLeastShare = 0.0012;  // of the width; narrower tiles are a pixel and only in the way

function componentTitle(name) { return name.replaceAll("_", " "); }

// {name, bytes, count, look, children}; children are the larger first.
function byComponent(root) {
  const prune = (node, c) => {
    const children = node.k.filter((child) => child.t[c] > 0).map((child) => prune(child, c));
    return {name: node.n, bytes: node.t[c], count: node.c, look: "c-" + report.components[c],
            component: report.components[c], children};
  };
  const children = root.t.map((bytes, c) => ({...prune(root, c), name: componentTitle(report.components[c])}))
    .filter((node) => node.bytes > 0);
  return {name: "allocated at the peak", bytes: root.t.reduce((a, b) => a + b, 0), count: 1, look: "",
          totals: root.t, children};
}

function byModule(root) {
  const convert = (node) => {
    const own = node.t.slice();
    for (const child of node.k) child.t.forEach((bytes, c) => { own[c] -= bytes; });
    const parts = own.map((bytes, c) => ({
      name: componentTitle(report.components[c]), bytes, count: 1, look: "c-" + report.components[c],
      component: report.components[c], children: [],
    })).filter((part) => part.bytes > 0);
    return {name: node.n || "no module", bytes: node.t.reduce((a, b) => a + b, 0), count: node.c, look: "",
            totals: node.t, children: [...node.k.map(convert), ...parts]};
  };
  return {...convert(root), name: "allocated at the peak"};
}

class Icicle {
  constructor(section, peak) {
    this.section = section;
    this.orders = {component: byComponent(peak.tree), module: byModule(peak.tree)};
    this.tree = element("div", {class: "tree", role: "tree", "aria-label": "The peak by component and module"});
    this.detail = element("p", {class: "detail", "aria-hidden": "true"});
    addToHeading(section, choices("Order", [["component", "By component"], ["module", "By module"]],
      "component", (order) => this.use(order)));
    section.append(this.tree, this.detail, this.hint());
    this.tree.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.layout()).observe(this.tree);
    this.use("component");
  }

  hint() {
    const hint = element("p", {class: "hint keys"});
    hint.innerHTML = "Click a tile to look closer, a tile above it to step back. With the keyboard: " +
      "arrows move, <kbd>Enter</kbd> looks closer, <kbd>Esc</kbd> steps back.";
    return hint;
  }

  use(order) {
    this.root = this.orders[order];
    this.tiles = [];
    this.tree.replaceChildren();
    const place = (node, parent, start, depth) => {
      Object.assign(node, {parent, start, depth});
      node.tile = this.makeTile(node);
      this.tiles.push(node);
      this.tree.append(node.tile);
      let at = start;
      node.children.sort((a, b) => b.bytes - a.bytes);
      for (const child of node.children) {
        place(child, node, at, depth + 1);
        at += child.bytes;
      }
    };
    place(this.root, null, 0, 0);
    this.focus = this.root;
    this.setCurrent(this.root, false);
    this.layout();
  }

  makeTile(node) {
    const count = node.count > 1 ? " \u00d7 " + node.count : "";
    const tile = element("div", {class: "tile " + node.look, role: "treeitem", tabindex: -1,
      "aria-level": node.depth + 1,
      "aria-label": `${node.name}${count}, ${formatMiB(node.bytes)}, ${percent(node.bytes, this.root.bytes)} of the peak`});
    tile.append(element("span", {}, node.name + count, element("em", {}, formatMiB(node.bytes))));
    tile.addEventListener("click", () => {
      this.setCurrent(node, true);
      this.zoom(node === this.focus && node.parent ? node.parent : node);
    });
    tile.addEventListener("pointerenter", () => this.describe(node));
    tile.addEventListener("pointerleave", () => this.describe(this.current));
    tile.addEventListener("focus", () => this.setCurrent(node, false));
    return tile;
  }

  zoom(node) {
    this.focus = node.children.length > 0 || !node.parent ? node : node.parent;
    this.layout();
    this.describe(this.current);
  }

  layout() {
    const {focus} = this;
    const above = new Set();
    for (let node = focus.parent; node; node = node.parent) above.add(node);
    const width = this.tree.clientWidth;
    let deepest = 0;
    for (const node of this.tiles) {
      const share = node.bytes / focus.bytes;
      const inside = node.start >= focus.start && node.start + node.bytes <= focus.start + focus.bytes &&
        node.depth >= focus.depth;
      node.visible = above.has(node) || (inside && share >= kLeastShare);
      node.tile.hidden = !node.visible;
      if (!node.visible) continue;
      deepest = Math.max(deepest, node.depth);
      const left = above.has(node) ? 0 : (node.start - focus.start) / focus.bytes;
      const wide = above.has(node) ? 1 : share;
      node.tile.style.left = 100 * left + "%";
      node.tile.style.width = 100 * wide + "%";
      node.tile.style.top = node.depth * kRowHeight + "px";
      node.tile.classList.toggle("above", above.has(node));
      node.tile.classList.toggle("thin", wide * width < 34);
      node.tile.firstChild.style.color = wide * width < 34 ? "transparent" : "";
    }
    for (const node of this.tiles) {
      if (!node.visible || node.children.length === 0) continue;
      node.tile.setAttribute("aria-expanded", node.children.some((child) => child.visible));
    }
    this.tree.style.height = (deepest + 1) * kRowHeight + "px";
  }

  // The one tile that Tab reaches.
  setCurrent(node, focus) {
    if (this.current) this.current.tile.tabIndex = -1;
    this.current = node;
    node.tile.tabIndex = 0;
    if (focus) node.tile.focus({preventScroll: true});
    this.describe(node);
  }

  describe(node) {
    const path = [];
    for (let at = node; at && at.parent; at = at.parent) path.unshift(at.name);
    const own = node.bytes - node.children.reduce((sum, child) => sum + child.bytes, 0);
    const parts = (node.totals || []).map((bytes, c) => ({bytes, name: componentTitle(report.components[c])}))
      .filter((part) => part.bytes > 0).sort((a, b) => b.bytes - a.bytes)
      .map((part) => part.name + " " + formatMiB(part.bytes));
    this.detail.replaceChildren(
      element("b", {}, path.length ? path.join(" \u203a ") : node.name), ": " + formatMiB(node.bytes) +
      ", " + percent(node.bytes, this.root.bytes) + " of the peak" +
      (node.count > 1 ? ", " + node.count + " modules" : "") +
      (node.component && own > 0 && own < node.bytes ? ", " + formatMiB(own) + " of it its own" : "") +
      (parts.length > 1 ? " (" + parts.join(", ") + ")" : ""));
  }

  key(event) {
    const node = this.current;
    const siblings = node.parent ? node.parent.children.filter((child) => child.visible) : [node];
    const at = siblings.indexOf(node);
    let next;
    switch (event.key) {
      case "ArrowRight": next = siblings[at + 1]; break;
      case "ArrowLeft": next = siblings[at - 1]; break;
      case "ArrowUp": next = node.parent; break;
      case "ArrowDown": next = node.children.find((child) => child.visible); break;
      case "Home": next = this.root; break;
      case "Enter": case " ": this.zoom(node); break;
      case "Escape":
        if (this.focus.parent) this.zoom(this.focus.parent);
        next = node.visible ? undefined : this.focus;
        break;
      default: return;
    }
    event.preventDefault();
    if (next) this.setCurrent(next, true);
  }
}

for (const section of document.querySelectorAll("[data-peak]")) {
  new Icicle(section, report.peaks[Number(section.dataset.peak)]);
}
