// SPDX-License-Identifier: Apache-2.0
// Tables sort by any column: largest or first word first, then the other way, then as they came.

function cellValue(row, column) {
  const cell = row.cells[column];
  return cell.dataset.v === undefined ? null : Number(cell.dataset.v);
}

function compareRows(a, b, column) {
  const x = cellValue(a, column);
  const y = cellValue(b, column);
  if (x !== null && y !== null) return x - y;
  return a.cells[column].textContent.localeCompare(b.cells[column].textContent, "en", {numeric: true});
}

function nextOrder(order, numeric) {
  const orders = numeric ? ["descending", "ascending", null] : ["ascending", "descending", null];
  return orders[(orders.indexOf(order) + 1) % 3];
}

function sortable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const shown = rows.filter((row) => !row.classList.contains("more")).length;
  const heads = [...table.tHead.rows[0].cells];
  const sort = (head, column) => {
    const order = nextOrder(head.getAttribute("aria-sort"), head.classList.contains("num"));
    for (const other of heads) other.removeAttribute("aria-sort");
    if (order) head.setAttribute("aria-sort", order);
    const sorted = rows.slice();
    if (order === "ascending") sorted.sort((a, b) => compareRows(a, b, column));
    if (order === "descending") sorted.sort((a, b) => compareRows(b, a, column));
    sorted.forEach((row, i) => row.classList.toggle("more", i >= shown));
    body.append(...sorted);
  };
  heads.forEach((head, column) => {
    const button = element("button", {type: "button"}, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(head, column));
  });
  if (rows.length > shown) foldable(table, rows.length);
}

// The first rows, and a button for all of them.
function foldable(table, count) {
  table.classList.add("folded");
  const button = element("button", {type: "button", class: "all", "aria-expanded": false, "aria-controls": table.id});
  const label = () => {
    const folded = table.classList.contains("folded");
    button.textContent = folded ? `Show all ${thousands(count)} rows` : "Show fewer rows";
    button.setAttribute("aria-expanded", !folded);
  };
  button.addEventListener("click", () => {
    table.classList.toggle("folded");
    label();
  });
  label();
  table.parentElement.after(button);
}

for (const table of document.querySelectorAll("table.sortable")) sortable(table);
