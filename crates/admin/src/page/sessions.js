// Live allocations: filtered, sorted and cut by the server.
import { ask, query } from "./api.js";
import { h, render, table } from "./dom.js";
import * as format from "./format.js";

const PAGE = 100;
const EVERY = 2000;

const rate = (of) => (session) => (session.rates ? format.bits(session.rates[of].bits_per_second) : "–");

const COLUMNS = [
  { name: "User", sort: "user", kind: "name", cell: (one) => h("a", { href: `#/session/${one.id}` }, format.user(one)) },
  { name: "Client", sort: "client", kind: "address", cell: (one) => `${one.transport} ${one.client}` },
  { name: "Relayed", kind: "address", cell: (one) => one.relayed.join(" ") },
  { name: "Age", sort: "age", kind: "number", cell: (one) => format.duration(one.age_seconds) },
  { name: "To peers", sort: "rate", kind: "number", cell: rate("to_peers") },
  { name: "To client", kind: "number", cell: rate("to_client") },
  { name: "Traffic", sort: "traffic", kind: "number", cell: (one) => format.bytes(one.to_peers.bytes + one.to_client.bytes) },
  { name: "Dropped", sort: "dropped", kind: "number", cell: (one) => format.number(one.dropped_packets) },
  { name: "Path", cell: path },
];

export function show(place, { guarded, every }, of) {
  const filter = h("input", { type: "search", id: "filter", autocomplete: "off", maxlength: "200", oninput: () => { pages = [undefined]; refresh(); } });
  const list = h("div", { id: "list" });
  const count = h("p", { class: "quiet", id: "count", role: "status" });
  const before = h("button", { type: "button", onclick: () => { pages.pop(); refresh(); } }, "Previous page");
  const after = h("button", { type: "button", onclick: () => { pages.push(next); refresh(); } }, "Next page");
  filter.value = new URLSearchParams(of).get("filter") ?? "";
  let order = "rate";
  let pages = [undefined];
  let next;
  let asked = 0;
  place.append(
    h("h1", { tabindex: "-1" }, "Sessions"),
    h("form", { class: "line", role: "search", onsubmit: (event) => event.preventDefault() },
      h("div", {}, h("label", { for: "filter" }, "Filter by user, address or id"), filter), before, after),
    count, list);
  const sort = (by) => {
    order = order === by ? `-${by}` : by;
    pages = [undefined];
    refresh();
  };
  const refresh = guarded(async (isHeld) => {
    const number = asked += 1;
    const page = await ask(query("/v1/sessions", { rates: "true", sort: order, filter: filter.value, limit: PAGE, after: pages.at(-1) }));
    if (number !== asked || isHeld?.()) return; // a later question is under way, or the page is held
    next = page.next;
    before.disabled = pages.length === 1;
    after.disabled = next === undefined;
    count.textContent = counted(page.total, filter.value !== "", pages.length);
    render(list, page.sessions.length === 0 ? [] : table("Live sessions", COLUMNS, page.sessions, { key: (one) => one.id, order, onsort: sort }));
  });
  return every(refresh, EVERY);
}

function counted(total, isFiltered, page) {
  if (total === 0) return isFiltered ? "No live session has this in its user, address or id." : "No live sessions.";
  return `${format.number(total)} ${total === 1 ? "session" : "sessions"}, page ${page}`;
}

// A route alone relays nothing.
function path({ offload, channels }) {
  if (offload.by !== "kernel") return offload.by;
  return `kernel (${offload.channels} of ${channels}${offload.packets === 0 ? ", unused" : ""})`;
}
