// Views that are one table: users, refusals, configuration, log.
import { ask, query } from "./api.js";
import { h, replace, table } from "./dom.js";
import * as format from "./format.js";

const EVERY = 3000;

/** A heading, a sentence, perhaps a filter, and a table that is filled again and again. */
function view(place, { guarded, every }, { title, about, filter, seconds = EVERY }, fill) {
  const list = h("div", { id: "list" });
  const input = filter && h("input", { type: "search", id: "filter", autocomplete: "off", maxlength: "200", oninput: () => refresh() });
  place.append(h("h1", { tabindex: "-1" }, title), h("p", { class: "quiet" }, about),
    ...(filter ? [h("form", { class: "line", role: "search", onsubmit: (event) => event.preventDefault() },
      h("div", {}, h("label", { for: "filter" }, filter), input))] : []), list);
  const refresh = guarded(async () => replace(list, await fill(input?.value ?? "", () => refresh())));
  return every(refresh, seconds);
}

const none = (text) => h("p", { class: "quiet" }, text);

export function users(place, context) {
  let order = "rate";
  return view(place, context, { title: "Users", about: "Users with live allocations.", filter: "Filter by name" }, async (filter, again) => {
    const page = await ask(query("/v1/users", { filter, sort: order }));
    if (page.users.length === 0) return none("No user has a live allocation.");
    const rate = (of) => (user) => format.bits(user.rates[of].bits_per_second);
    return table(`${format.number(page.total)} users${page.more ? ", the first of them" : ""}`, [
      { name: "User", sort: "user", kind: "name", cell: (user) => h("a", { href: "#/sessions" }, user.account || "(open relay)") },
      { name: "Realm", cell: (user) => user.realm },
      { name: "Sessions", sort: "sessions", number: true, cell: (user) => format.number(user.sessions) },
      { name: "To peers", sort: "rate", number: true, cell: rate("to_peers") },
      { name: "To clients", number: true, cell: rate("to_client") },
      { name: "Traffic", sort: "traffic", number: true, cell: (user) => format.bytes(user.to_peers.bytes + user.to_client.bytes) },
    ], page.users, { order, onsort: (by) => { order = by; again(); } });
  });
}

/** The line of the configuration that allows a peer, where one can. */
function fix(refusal) {
  const allow = refusal.denied_by === "special_purpose" || refusal.denied_by === "own_address"
    ? h("div", {}, "To allow it: ", h("code", {}, `peers.allow = ["${refusal.peer}"]`)) : null;
  return [refusal.meaning, " ", refusal.advice, allow].filter((one) => one !== null);
}

export function refusals(place, context) {
  return view(place, context, { title: "Refusals", about: "Recently refused requests by client and reason, each with its fix.", filter: "Only this user, or the IP address of a client" }, async (filter) => {
    const which = /^[0-9.]+$|:.*:/.test(filter) ? { client: filter } : { user: filter };
    const page = await ask(query("/v1/refusals", which)).catch((error) => {
      if (error.status === 400) return { refusals: [] }; // half an address
      throw error;
    });
    if (page.refusals.length === 0) return none("No recent refusals. If a client cannot connect, perhaps nothing of it arrives: run `turnpike probe` on its host.");
    const name = (refusal) => refusal.user ?? (refusal.claimed_user === undefined ? "–" : `calls itself “${refusal.claimed_user}”`);
    return table("Recent refusals, the latest first", [
      { name: "Last", cell: (refusal) => format.ago(refusal.seconds_ago) },
      { name: "Times", number: true, cell: (refusal) => format.number(refusal.count) },
      { name: "User", kind: "name", cell: name },
      { name: "Client", cell: (refusal) => `${refusal.transport} ${refusal.client}` },
      { name: "Request", cell: (refusal) => `${refusal.method}${refusal.peer === undefined ? "" : ` for ${refusal.peer}`}` },
      { name: "Reason", cell: (refusal) => [`${refusal.code} `, h("code", {}, refusal.reason)] },
      { name: "Meaning and fix", kind: "text", cell: fix },
    ], page.refusals);
  });
}

export function configuration(place, context) {
  return view(place, context, { title: "Configuration", about: "The configuration in force, with the place of each value. Secrets are not shown.", filter: "Filter by key, value or place", seconds: 15000 }, async (filter) => {
    const { keys } = await ask("/v1/configuration");
    const part = filter.toLowerCase();
    const shown = keys.filter((key) => [key.key, key.value, key.origin ?? "default"].some((text) => text.toLowerCase().includes(part)));
    return table(`${shown.length} of ${keys.length} keys`, [
      { name: "Key", cell: (key) => h("code", {}, key.key) },
      { name: "Value", kind: "text", cell: (key) => h("code", {}, key.value) },
      { name: "From", cell: (key) => (key.origin === undefined ? h("span", { class: "quiet" }, "default") : key.origin) },
      { name: "Changed by", cell: (key) => (key.is_live ? "reload" : "restart") },
    ], shown);
  });
}

export function log(place, context) {
  return view(place, context, { title: "Log", about: "The last warnings and errors, at most 100; the log of the service has everything." }, async () => {
    const { warnings } = await ask("/v1/warnings");
    if (warnings.length === 0) return none("No warnings since the start.");
    return table("Warnings and errors, the latest first", [
      { name: "Time", cell: (one) => format.clock(one.time_unix) },
      { name: "Level", cell: (one) => h("span", { class: one.level === "error" ? "error" : null }, one.level) },
      { name: "Times", number: true, cell: (one) => format.number(one.count) },
      { name: "Message", kind: "text", cell: (one) => one.text },
    ], warnings);
  });
}
