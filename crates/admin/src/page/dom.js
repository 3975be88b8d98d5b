// Elements. Text of clients (names, addresses) is only ever set as text: there is no markup from data.

/** An element with attributes and children; strings become text. `on…` attributes are listeners. */
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
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** A table: `columns` are {name, number?, sort?, cell(row)}; `order` marks the sorted column. */
export function table(caption, columns, rows, { order, onsort } = {}) {
  const head = columns.map((column) => {
    const sorted = column.sort !== undefined && (order === column.sort || order === `-${column.sort}`);
    const label = column.sort === undefined
      ? column.name
      : h("button", { type: "button", "data-sort": column.sort, onclick: () => onsort(column.sort) }, column.name);
    return h("th", {
      scope: "col",
      class: column.number ? "number" : null,
      // The natural order of numbers has the most first.
      "aria-sort": sorted ? (order.startsWith("-") === Boolean(column.number) ? "ascending" : "descending") : null,
    }, label);
  });
  const body = rows.map((row) => h("tr", {}, columns.map((column) =>
    h("td", { class: column.number ? "number" : column.kind }, column.cell(row)))));
  return h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

/** Replaces the content, and keeps the focus where a button of the same purpose still is. */
export function replace(place, ...children) {
  const active = document.activeElement;
  const sort = place.contains(active) ? active?.dataset?.sort : undefined;
  const region = place.contains(active) && active.getAttribute("role") === "region"
    ? active.getAttribute("aria-label") : undefined;
  const link = place.contains(active) && active.tagName === "A" ? active.getAttribute("href") : undefined;
  const scrolled = place.querySelector(".scroll")?.scrollLeft ?? 0;
  place.replaceChildren(...children.flat());
  const scroller = place.querySelector(".scroll");
  if (scroller) scroller.scrollLeft = scrolled;
  const find = (selector, is) => [...place.querySelectorAll(selector)].find(is)?.focus({ preventScroll: true });
  if (sort) find("button", (button) => button.dataset.sort === sort);
  else if (link) find("a", (one) => one.getAttribute("href") === link);
  else if (region) find(".scroll", (one) => one.getAttribute("aria-label") === region);
}
