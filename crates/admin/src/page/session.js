// One allocation, with its peers and its past, and the way to end it.
import { ask } from "./api.js";
import { code, facts, h, prose, render, table } from "./dom.js";
import * as format from "./format.js";

const EVERY = 2000;

export function show(place, { guarded, every, notice, me }, id) {
  const body = h("div");
  const path = `/v1/sessions/${encodeURIComponent(id)}`;
  const may = me.role !== "read";
  const end = h("button", { type: "button", class: "bad", id: "end", disabled: !may, onclick: () => dialog.showModal() }, "End this session");
  const dialog = h("dialog", { "aria-labelledby": "ask" },
    h("p", { id: "ask" }, "End this session? Its client loses the relayed address at once; most clients then connect anew."),
    h("form", { method: "dialog" },
      h("button", { value: "no", autofocus: true }, "Keep it"),
      h("button", { class: "bad", id: "really", value: "yes" }, "End it")));
  dialog.addEventListener("close", guarded(async () => {
    if (dialog.returnValue !== "yes") return end.focus();
    await ask(path, { method: "DELETE" });
    notice(`Session ${id} was ended.`);
    location.hash = "#/sessions";
  }));
  place.append(
    h("p", {}, h("a", { href: "#/sessions" }, "All sessions")),
    h("h1", { tabindex: "-1" }, `Session ${id}`),
    h("p", {}, end, may ? null : h("span", { class: "quiet" }, " needs a token with the role operate")),
    dialog, body);
  const refresh = guarded(async (isHeld) => {
    try {
      const all = await ask(path);
      if (!isHeld?.()) render(body, details(all));
    } catch (error) {
      if (error.status !== 404 && error.status !== 400) throw error;
      end.disabled = true;
      stop();
      render(body, h("p", { class: "error" }, prose(`${error.message}: ${error.hint}`)));
    }
  });
  const stop = every(refresh, EVERY);
  return stop;
}

function details(all) {
  const one = all.session;
  const rate = (of) => one.rates
    ? `${format.bits(one.rates[of].bits_per_second)}, ${format.packets(one.rates[of].packets_per_second)}; ` : "";
  const volume = (of) => `${rate(of)}${format.bytes(one[of].bytes)} in ${format.number(one[of].packets)} packets`;
  return [
    facts([
      ["User", format.user(one)],
      ["Realm", one.realm],
      ["Client", `${one.client} over ${one.transport}, at ${one.server}`],
      ["Relayed", `${one.relayed.join(" ")} (${one.relays})`],
      ["Age", `${format.duration(one.age_seconds)}; expires in ${format.duration(one.expires_in_seconds)} unless refreshed`],
      ["To peers", volume("to_peers")],
      ["To client", volume("to_client")],
      ["Dropped", `${format.number(one.dropped_packets)} packets`],
      ["Path", prose(all.path)],
    ]),
    reasons("Dropped packets", all.drops), reasons("Refused requests", all.refusals),
    h("h2", {}, "Peers"),
    peers("Channels", all.channels, "No channel is bound.", [
      { name: "Number", cell: (channel) => h("code", {}, channel.number) }]),
    peers("Permissions", all.permissions, "No peer is permitted.", []),
    all.connected_peers.length === 0 ? null : h("p", {}, `TCP connections with ${all.connected_peers.join(", ")}`),
    h("h2", {}, "Timeline"),
    table("What is known of its past, the latest first", [
      { name: "When", cell: (moment) => format.ago(moment.seconds_ago) },
      { name: "Event", kind: "text", cell: (moment) => prose(moment.text) },
    ], all.timeline, { key: (moment) => moment.text }),
  ];
}

function peers(name, list, none, columns) {
  return h("div", { key: name, class: "part" }, list.length === 0 ? h("p", { class: "quiet" }, none) : table(name, [
    ...columns,
    { name: "Peer", kind: "address", cell: (one) => one.peer },
    { name: "Expires in", kind: "number", cell: (one) => format.duration(one.expires_in_seconds) },
  ], list, { key: (one) => one.peer }));
}

function reasons(name, counts) {
  return counts.length === 0 ? null : h("div", { key: name }, h("h2", {}, name), table(`${name} by reason`, [
    { name: "Reason", kind: "code", cell: (one) => code(one.reason) },
    { name: "Number", kind: "number", cell: (one) => format.number(one.count) },
    { name: "Meaning and advice", kind: "text", cell: (one) => prose(`${one.meaning} ${one.advice}`) },
  ], counts, { key: (one) => one.reason }));
}
