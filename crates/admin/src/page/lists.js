// Views that are one table: users, refusals, configuration, log.
import { ask, query } from "./api.js";
import { code, h, prose, render, table } from "./dom.js";
import * as format from "./format.js";

const EVERY = 3000;

/** A heading, a sentence, perhaps a filter, and a table that is filled again and again. */
function view(place, { guarded, every }, { title, about, filter, seconds = EVERY }, fill) {
  const list = h("div", { id: "list" });
  const input = filter && h("input", { type: "search", id: "filter", autocomplete: "off", maxlength: "200", oninput: () => refresh() });
  place.append(h("h1", { tabindex: "-1" }, title), h("p", { class: "quiet" }, about),
    ...(filter ? [h("form", { class: "line", role: "search", onsubmit: (event) => event.preventDefault() },
      h("div", {}, h("label", { for: "filter" }, filter), input))] : []), list);
  let asked = 0;
  const refresh = guarded(async (isHeld) => {
    const number = asked += 1;
    const content = await fill(input?.value ?? "", () => refresh());
    if (number === asked && !isHeld?.()) render(list, content);
  });
  return every(refresh, seconds);
}

const none = (text) => h("p", { class: "quiet" }, prose(text));

export function users(place, context) {
  let order = "rate";
  return view(place, context, { title: "Users", about: "Users with live allocations.", filter: "Filter by name" }, async (filter, again) => {
    const page = await ask(query("/v1/users", { filter, sort: order }));
    if (page.users.length === 0) return none(filter === "" ? "No user has a live allocation." : "No user with a live allocation has this in its name.");
    const rate = (of) => (user) => format.bits(user.rates[of].bits_per_second);
    return table(`${format.number(page.total)} users${page.more ? ", the first of them" : ""}`, [
      { name: "User", sort: "user", kind: "name", cell: (user) => h("a", { href: query("#/sessions/", { filter: user.account }) }, user.account || "(open relay)") },
      { name: "Realm", kind: "name", cell: (user) => user.realm },
      { name: "Sessions", sort: "sessions", kind: "number", cell: (user) => format.number(user.sessions) },
      { name: "To peers", sort: "rate", kind: "number", cell: rate("to_peers") },
      { name: "To clients", kind: "number", cell: rate("to_client") },
      { name: "Traffic", sort: "traffic", kind: "number", cell: (user) => format.bytes(user.to_peers.bytes + user.to_client.bytes) },
    ], page.users, { key: (user) => `${user.account} ${user.realm}`, order, onsort: (by) => { order = by; again(); } });
  });
}

/** The line of the configuration that allows a peer, where one can. */
function fix(refusal) {
  const allow = refusal.denied_by === "special_purpose" || refusal.denied_by === "own_address"
    ? h("div", {}, "To allow it: ", h("code", {}, `peers.allow = ["${refusal.peer}"]`)) : null;
  return [...prose(`${refusal.meaning} ${refusal.advice}`), allow];
}

export function refusals(place, context) {
  return view(place, context, { title: "Refusals", about: "Recently refused requests by client and reason, each with its fix.", filter: "Only this user, or the IP address of a client" }, async (filter) => {
    const which = /^[0-9.]+$|:.*:/.test(filter) ? { client: filter } : { user: filter };
    const page = await ask(query("/v1/refusals", which)).catch((error) => {
      if (error.status === 400) return { refusals: [] }; // half an address
      throw error;
    });
    if (page.refusals.length === 0) return none(filter !== "" ? "No recent refusals of this user or client." : "No recent refusals. If a client cannot connect, perhaps nothing of it arrives: run `turnpike probe` on its host.");
    const name = (refusal) => refusal.user ?? (refusal.claimed_user === undefined ? "–" : `calls itself “${refusal.claimed_user}”`);
    return table("Recent refusals, the latest first", [
      { name: "Last", cell: (refusal) => format.ago(refusal.seconds_ago) },
      { name: "Times", kind: "number", cell: (refusal) => format.number(refusal.count) },
      { name: "User", kind: "name", cell: name },
      { name: "Client", kind: "address", cell: (refusal) => `${refusal.transport} ${refusal.client}` },
      { name: "Request", kind: "address", cell: (refusal) => `${refusal.method}${refusal.peer === undefined ? "" : ` for ${refusal.peer}`}` },
      { name: "Reason", kind: "code", cell: (refusal) => [`${refusal.code} `, code(refusal.reason)] },
      { name: "Meaning and fix", kind: "text", cell: fix },
    ], page.refusals, { key: (refusal) => [refusal.reason, refusal.client, refusal.method, refusal.peer, refusal.user].join(" ") });
  });
}

export function configuration(place, context) {
  return view(place, context, { title: "Configuration", about: "The configuration in force, with the place of each value. Secrets are not shown.", filter: "Filter by key, value or place", seconds: 15000 }, async (filter) => {
    const { keys } = await ask("/v1/configuration");
    const part = filter.toLowerCase();
    const shown = keys.filter((key) => [key.key, key.value, key.origin ?? "default"].some((text) => text.toLowerCase().includes(part)));
    if (shown.length === 0) return none("No key, value or place has this in it.");
    return table(`${shown.length} of ${keys.length} keys`, [
      { name: "Key", kind: "code", cell: (key) => code(key.key) },
      { name: "Value", kind: "text", cell: (key) => code(key.value) },
      { name: "From", kind: "name", cell: (key) => (key.origin === undefined ? h("span", { class: "quiet" }, "default") : key.origin) },
      { name: "Changed by", cell: (key) => (key.is_live ? "reload" : "restart") },
    ], shown, { key: (key) => key.key });
  });
}

export function log(place, context) {
  return view(place, context, { title: "Log", about: "The last warnings and errors, at most 100; the log of the service has everything." }, async () => {
    const { warnings } = await ask("/v1/warnings");
    if (warnings.length === 0) return none("No warnings since the start.");
    return table("Warnings and errors, the latest first", [
      { name: "Time", cell: (one) => format.clock(one.time_unix) },
      { name: "Level", cell: (one) => h("span", { class: one.level === "error" ? "error" : null }, one.level) },
      { name: "Times", kind: "number", cell: (one) => format.number(one.count) },
      { name: "Message", kind: "text", cell: (one) => prose(one.text) },
    ], warnings, { key: (one) => one.text });
  });
}
