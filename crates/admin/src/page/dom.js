// Elements. Text of clients (names, addresses) is only ever set as text: there is no markup from data.

/** Attributes of `h` that are functions: properties, so that `render` can replace them. */
const HANDLERS = ["onclick", "oninput", "onsubmit"];

/** An element with attributes and children; strings become text. `key` is its identity for `render`. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "key" || HANDLERS.includes(name)) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A name in `code` that may break after `_`, `.` and `/`, and inside a word only where nothing else fits. */
export function code(text) {
  const parts = text.split(/(?<=[a-z][_./])(?=\w)/i);
  return h("code", {}, parts.flatMap((part, at) => (at === 0 ? [part] : [h("wbr"), part])));
}

/** A text of the server: what it has between back quotes becomes `code`. */
export function prose(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 === 1 ? code(part) : part)).filter((part) => part !== "");
}

/** Pairs of a name and a value. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.flatMap(([name, value]) => [h("dt", { key: name }, name), h("dd", { key: name }, value)]));
}

/**
 * A table, which a narrow window shows as cards: `columns` are {name, kind?, sort?, cell(row)}. `key` tells rows
 * apart, `order` marks the sorted column.
 */
export function table(caption, columns, rows, { key, order, onsort } = {}) {
  const head = columns.map((column) => {
    const sorted = column.sort !== undefined && (order === column.sort || order === `-${column.sort}`);
    const label = column.sort === undefined
      ? column.name
      : h("button", { type: "button", onclick: () => onsort(column.sort) }, column.name);
    return h("th", {
      scope: "col",
      role: "columnheader",
      class: column.kind,
      // The natural order of numbers has the most first.
      "aria-sort": sorted ? (order.startsWith("-") === (column.kind === "number") ? "ascending" : "descending") : null,
    }, label);
  });
  // The roles are for browsers that forget them when the style makes cards of rows.
  const body = rows.map((row) => h("tr", { role: "row", key: key?.(row) }, columns.map((column) =>
    h("td", { role: "cell", class: column.kind, "data-label": column.name }, column.cell(row)))));
  return h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", { role: "table" }, h("caption", {}, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)), h("tbody", { role: "rowgroup" }, body)));
}

let pressed = false;
for (const type of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) {
  // Without the right button: its menu may swallow the release.
  document.addEventListener(type, (event) => { pressed = (event.buttons & ~2) !== 0; }, true);
}

const paused = document.getElementById("paused");
const main = document.getElementById("main");

function isSelected() {
  const selection = document.getSelection();
  return !selection.isCollapsed && selection.rangeCount > 0 && selection.getRangeAt(0).intersectsNode(main);
}

document.addEventListener("selectionchange", () => { paused.hidden = paused.hidden || !isSelected(); });

/** True while a mouse button is down or text is selected: what is under the pointer may not move or change. */
export function isHeld() {
  paused.hidden = !isSelected();
  return pressed || !paused.hidden;
}

/** Makes the content of `place` equal to `children`; elements that are there already stay, with focus and scroll. */
export function render(place, ...children) {
  const active = document.activeElement;
  arrange(place, [...h("div", {}, ...children).childNodes]);
  // An element that moved has lost the focus.
  if (active !== document.activeElement && place.contains(active)) active.focus({ preventScroll: true });
}

/** Nodes by identity: the key or the kind of the node, and its number among equal ones. */
function identified(nodes) {
  const counts = new Map();
  return new Map([...nodes].map((node) => {
    const name = `${node.nodeName} ${node.key ?? ""}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
    return [`${counts.get(name)} ${name}`, node];
  }));
}

function arrange(place, fresh) {
  const old = identified(place.childNodes);
  const kept = [...identified(fresh)].map(([identity, node]) => {
    const same = old.get(identity);
    if (same === undefined) return node;
    old.delete(identity);
    update(same, node);
    return same;
  });
  for (const gone of old.values()) gone.remove();
  const places = new Map([...place.childNodes].map((node, at) => [node, at]));
  const staying = increasing(kept.map((node) => places.get(node)));
  let next = null;
  for (let at = kept.length - 1; at >= 0; at -= 1) {
    if (!staying.has(at)) place.insertBefore(kept[at], next);
    next = kept[at];
  }
}

function update(node, fresh) {
  if (node.nodeType === Node.TEXT_NODE) {
    // A text that is written anew loses its selection.
    if (node.data !== fresh.data) node.data = fresh.data;
    return;
  }
  for (const name of node.getAttributeNames()) if (!fresh.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of fresh.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  for (const name of HANDLERS) node[name] = fresh[name];
  arrange(node, [...fresh.childNodes]);
}

/** Indices of a longest increasing subsequence: the nodes that need not move. `undefined` stands for a new node. */
function increasing(numbers) {
  const ends = []; // ends[n] is the index of the least number that a subsequence of n + 1 numbers ends with
  const before = [];
  numbers.forEach((number, at) => {
    if (number === undefined) return;
    const longer = ends.findIndex((end) => numbers[end] > number);
    const length = longer < 0 ? ends.length : longer;
    before[at] = ends[length - 1];
    ends[length] = at;
  });
  const indices = new Set();
  for (let at = ends.at(-1); at !== undefined; at = before[at]) indices.add(at);
  return indices;
}
