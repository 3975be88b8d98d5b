// The server of the last second, live.
import { h, replace, table } from "./dom.js";
import { Spark } from "./chart.js";
import * as format from "./format.js";

const LEGS = [
  ["from_clients", "From clients"],
  ["to_peers", "To peers"],
  ["from_peers", "From peers"],
  ["to_clients", "To clients"],
];

export function show(place, { onOverview }) {
  const problems = h("div", { id: "problems", "aria-live": "polite" });
  const cards = h("ul", { class: "cards" });
  const rest = h("div");
  place.append(h("h1", { tabindex: "-1" }, "Overview"), problems, cards, rest);
  const number = (label, id) => {
    const value = h("span", { class: "number", id }, "…");
    const more = h("span", { class: "more" });
    const card = h("li", { class: "card" }, h("span", { class: "label" }, label), value, more);
    cards.append(card);
    return { value, more, card };
  };
  const allocations = number("Allocations", "allocations");
  const legs = LEGS.map(([leg, label]) => {
    const card = number(label, leg);
    const spark = new Spark(`${label}, bits per second of the last two minutes`);
    card.card.append(spark.element);
    return { leg, spark, ...card };
  });
  const kernel = number("Kernel path", "kernel");
  let said = "";
  return onOverview((now) => {
    allocations.value.textContent = format.number(now.allocations);
    allocations.more.textContent = `${format.number(now.connections)} TCP, ${format.number(now.dtls_sessions)} DTLS`;
    for (const { leg, value, more, spark } of legs) {
      const rate = now.rates[leg];
      value.textContent = format.bits(rate.bits_per_second);
      more.textContent = format.packets(rate.packets_per_second);
      spark.add(rate.bits_per_second);
    }
    kernel.value.textContent = now.kernel_share_percent === undefined ? "–" : `${now.kernel_share_percent} %`;
    kernel.more.textContent = now.kernel_share_percent === undefined ? "no traffic" : "of relayed packets";
    const wrong = JSON.stringify(now.problems);
    if (wrong !== said) {
      said = wrong;
      replace(problems, wrongNow(now));
    }
    replace(rest, details(now));
  });
}

function wrongNow(now) {
  if (now.problems.length === 0) return h("p", { class: "fine" }, "Nothing is wrong now.");
  return h("ul", { class: "problems", "aria-label": "What is wrong now" },
    now.problems.map((one) => h("li", { class: one.is_severe ? "severe" : null }, one.text)));
}

function details(now) {
  const reasons = (caption, list) => list.length === 0 ? null : table(caption, [
    { name: "Reason", cell: (one) => h("code", {}, one.reason) },
    { name: "Last minute", number: true, cell: (one) => format.number(one.last_minute) },
    { name: "Since the start", number: true, cell: (one) => format.number(one.total) },
    { name: "Meaning and advice", kind: "text", cell: (one) => `${one.meaning} ${one.advice}` },
  ], list);
  const drain = now.draining
    ? `draining${now.drain_seconds_left === undefined ? "" : `, at most ${format.duration(now.drain_seconds_left)} more`}`
    : "accepts allocations";
  return [
    h("h2", {}, "Server"),
    h("dl", { class: "facts" },
      h("dt", {}, "Realm"), h("dd", {}, now.realm),
      h("dt", {}, "Version"), h("dd", {}, `${now.version}, up ${format.duration(now.uptime_seconds)}`),
      h("dt", {}, "State"), h("dd", {}, drain),
      h("dt", {}, "Workers"), h("dd", {}, now.workers.length === 0 ? "–"
        : now.workers.map((one) => `${one.worker}: ${one.cpu_percent} %`).join(", ")),
      h("dt", {}, "Certificates"), h("dd", {}, now.certificates.length === 0 ? "none" : now.certificates.map((one) =>
        h("div", {}, `${one.file}: ${one.days_left < 0 ? "expired" : `${one.days_left} days left`}`)))),
    ...(now.refusals.length + now.drops.length > 0 ? [h("h2", {}, "Refusals and drops")] : []),
    reasons("Refused requests by reason", now.refusals),
    now.refusals.length > 0 ? h("p", {}, h("a", { href: "#/refusals" }, "Recent refusals, each with its fix")) : null,
    reasons("Dropped packets by reason", now.drops),
  ].filter((one) => one !== null);
}
