// One allocation, with its peers and its past, and the way to end it.
import { ask } from "./api.js";
import { h, replace, table } from "./dom.js";
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
  const refresh = guarded(async () => {
    try {
      replace(body, details(await ask(path)));
    } catch (error) {
      if (error.status !== 404 && error.status !== 400) throw error;
      end.disabled = true;
      stop();
      replace(body, h("p", { class: "error" }, `${error.message}: ${error.hint}`));
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
  const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];
  return [
    h("dl", { class: "facts" },
      fact("User", format.user(one)), fact("Realm", one.realm),
      fact("Client", `${one.client} over ${one.transport}, at ${one.server}`),
      fact("Relayed", `${one.relayed.join(" ")} (${one.relays})`),
      fact("Age", `${format.duration(one.age_seconds)}; expires in ${format.duration(one.expires_in_seconds)} unless refreshed`),
      fact("To peers", volume("to_peers")), fact("To client", volume("to_client")),
      fact("Dropped", `${format.number(one.dropped_packets)} packets`), fact("Path", all.path)),
    ...reasons("Dropped packets", all.drops), ...reasons("Refused requests", all.refusals),
    h("h2", {}, "Peers"),
    all.channels.length === 0 ? h("p", { class: "quiet" }, "No channel is bound.") : table("Channels", [
      { name: "Number", cell: (channel) => h("code", {}, channel.number) },
      { name: "Peer", cell: (channel) => channel.peer },
      { name: "Expires in", number: true, cell: (channel) => format.duration(channel.expires_in_seconds) },
    ], all.channels),
    all.permissions.length === 0 ? h("p", { class: "quiet" }, "No peer is permitted.") : table("Permissions", [
      { name: "Peer", cell: (permission) => permission.peer },
      { name: "Expires in", number: true, cell: (permission) => format.duration(permission.expires_in_seconds) },
    ], all.permissions),
    all.connected_peers.length === 0 ? h("span") : h("p", {}, `TCP connections with ${all.connected_peers.join(", ")}`),
    h("h2", {}, "Timeline"),
    table("What is known of its past, the latest first", [
      { name: "When", cell: (moment) => format.ago(moment.seconds_ago) },
      { name: "Event", kind: "text", cell: (moment) => moment.text },
    ], all.timeline),
  ];
}

function reasons(name, counts) {
  return counts.length === 0 ? [] : [h("h2", {}, name), table(`${name} by reason`, [
    { name: "Reason", cell: (one) => h("code", {}, one.reason) },
    { name: "Number", number: true, cell: (one) => format.number(one.count) },
    { name: "Meaning and advice", kind: "text", cell: (one) => `${one.meaning} ${one.advice}` },
  ], counts)];
}
