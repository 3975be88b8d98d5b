// The server of the last second, live.
import { ask } from "./api.js";
import { code, facts, h, isHeld, prose, render, table } from "./dom.js";
import { Spark } from "./chart.js";
import * as format from "./format.js";

const LEGS = [
  ["from_clients", "From clients"],
  ["to_peers", "To peers"],
  ["from_peers", "From peers"],
  ["to_clients", "To clients"],
];

export function show(place, { guarded, onOverview }) {
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
  /** A number with a line of the last hour; `of` returns the value of an overview and of a point of the history. */
  const graph = (label, id, unit, show, of) => {
    const card = number(label, id);
    const spark = new Spark(`${label}, ${unit} of the last hour`);
    const highest = h("span", { class: "hour" });
    card.card.append(spark.element, highest);
    return { ...card, spark, highest, show, of };
  };
  const allocations = graph("Allocations", "allocations", "number", format.number, (now) => now.allocations);
  const legs = LEGS.map(([leg, label]) => ({ leg, ...graph(label, leg, "bits per second", format.bits, (now) => now.rates[leg].bits_per_second) }));
  const kernel = number("Kernel path", "kernel");
  const graphs = [allocations, ...legs];

  let every = 15;
  let latest = 0;
  const fill = guarded(async () => {
    const { seconds, points } = await ask("/v1/history");
    every = seconds;
    for (const { spark, of } of graphs) spark.fill(points.map((point) => [point.time_unix, of(point)]));
  });
  return onOverview((now) => {
    const time = now.time_unix;
    // Also after a time without overviews: the computer may have slept.
    if (time - latest > 2 * every) fill();
    latest = time;
    for (const { spark, of } of graphs) spark.add(time, of(now), every);
    if (isHeld()) return;
    for (const { value, spark, highest, show, of } of graphs) {
      render(value, show(of(now)));
      render(highest, `1 h peak: ${show(Math.round(Math.max(of(now), spark.draw(time))))}`);
    }
    render(allocations.more, `${format.number(now.connections)} TCP, ${format.number(now.dtls_sessions)} DTLS`);
    for (const { leg, more } of legs) render(more, format.packets(now.rates[leg].packets_per_second));
    const [share, why] = kernelPath(now);
    render(kernel.value, share);
    render(kernel.more, why);
    render(problems, wrongNow(now));
    render(rest, details(now));
  });
}

function kernelPath({ kernel_path_off: off, kernel_share_percent: share }) {
  if (off !== undefined) return ["off", prose(off)];
  return share === undefined ? ["–", "no traffic"] : [`${share} %`, "of relayed packets"];
}

function wrongNow(now) {
  if (now.problems.length === 0) return h("p", { class: "fine" }, "Nothing is wrong now.");
  return h("ul", { class: "problems", "aria-label": "What is wrong now" },
    now.problems.map((one) => h("li", { class: one.is_severe ? "severe" : null }, prose(one.text))));
}

function details(now) {
  const reasons = (caption, list) => list.length === 0 ? null : h("div", { key: caption }, table(caption, [
    { name: "Reason", kind: "code", cell: (one) => code(one.reason) },
    { name: "Last minute", kind: "number", cell: (one) => format.number(one.last_minute) },
    { name: "Since the start", kind: "number", cell: (one) => format.number(one.total) },
    { name: "Meaning and advice", kind: "text", cell: (one) => prose(`${one.meaning} ${one.advice}`) },
  ], list, { key: (one) => one.reason }));
  const drain = now.draining
    ? `draining${now.drain_seconds_left === undefined ? "" : `, at most ${format.duration(now.drain_seconds_left)} more`}`
    : "accepts allocations";
  const { relay_ports: ports, memory_bytes: memory, open_files: files } = now.resources;
  const lines = (texts) => texts.map((text) => h("div", {}, text));
  const expiry = (days) => (days < 0 ? "expired" : `${days} ${days === 1 ? "day" : "days"} left`);
  return [
    h("h2", {}, "Server"),
    facts([
      ["Host", now.host === "" ? "unknown" : now.host],
      ["Realm", now.realm],
      ["Version", `${now.version}, up ${format.duration(now.uptime_seconds)}`],
      ["State", drain],
      ["Listeners", lines(now.listeners)],
      ["Relay ports", format.usage(ports, format.number)],
      ["Memory", memory && format.usage(memory, format.bytes)],
      ["Open files", files && format.usage(files, format.number)],
      ["CPU of workers", now.workers.length === 0 ? "–" : now.workers.map((one) => `${one.worker}: ${one.cpu_percent} %`).join(", ")],
      ["Certificates", now.certificates.length === 0 ? "none" : lines(now.certificates.map((one) => `${one.file}: ${expiry(one.days_left)}`))],
    ].filter(([, value]) => value !== undefined)),
    ...(now.refusals.length + now.drops.length > 0 ? [h("h2", {}, "Refusals and drops")] : []),
    reasons("Refused requests by reason", now.refusals),
    now.refusals.length > 0 ? h("p", {}, h("a", { href: "#/refusals" }, "Recent refusals, each with its fix")) : null,
    reasons("Dropped packets by reason", now.drops),
  ];
}
