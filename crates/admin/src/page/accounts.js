// Users of the database: a page of them, one more, and the end of one.
import { ask, query } from "./api.js";
import { h, render, table } from "./dom.js";
import * as format from "./format.js";

const PAGE = 100;

export function show(place, { guarded, notice, me }) {
  const may = me.role === "admin";
  let realm = me.realm;
  let pages = [undefined];
  let next;
  const list = h("div", { id: "list" });
  const made = h("p", { id: "made", role: "status" });
  const refresh = guarded(async () => {
    const page = await ask(query("/v1/accounts", { realm, limit: PAGE, after: pages.at(-1) }));
    realm = page.realm;
    chosen.value = realm;
    next = page.next;
    before.disabled = pages.length === 1;
    after.disabled = next === undefined;
    render(list, page.accounts.length === 0 ? h("p", { class: "quiet" }, `Realm ${realm} has no users in the database.`) : table(`Users of realm ${realm}`, [
      { name: "User", kind: "name", cell: (one) => one.name },
      { name: "Allocations", kind: "number", cell: (one) => (one.allocations_max === undefined ? "as configured" : one.allocations_max === 0 ? "any number" : format.number(one.allocations_max)) },
      { name: "Added", cell: (one) => (one.created_unix === undefined ? "–" : format.clock(one.created_unix)) },
      { name: "", cell: (one) => h("button", { type: "button", class: "bad", disabled: !may, "aria-label": `Delete ${one.name}`, onclick: () => askToDelete(one.name) }, "Delete") },
    ], page.accounts, { key: (one) => one.name }));
  });
  const before = h("button", { type: "button", onclick: () => { pages.pop(); refresh(); } }, "Previous page");
  const after = h("button", { type: "button", onclick: () => { pages.push(next); refresh(); } }, "Next page");
  const chosen = h("input", { id: "realm", autocomplete: "off", maxlength: "127", disabled: me.realm !== undefined });
  const choose = (event) => {
    event.preventDefault();
    realm = chosen.value;
    pages = [undefined];
    refresh();
  };

  const name = h("input", { id: "name", required: true, autocomplete: "off", maxlength: "508" });
  const password = h("input", { id: "password", type: "password", autocomplete: "new-password", minlength: "8", placeholder: "generated if empty" });
  const limit = h("input", { id: "limit", type: "number", min: "0", max: "4294967295", placeholder: "as configured" });
  const add = guarded(async (event) => {
    event.preventDefault();
    const body = { name: name.value, realm };
    if (password.value !== "") body.password = password.value;
    if (limit.value !== "") body.allocations_max = Number(limit.value);
    const added = await ask("/v1/accounts", { method: "POST", body });
    for (const input of [name, password, limit]) input.value = "";
    render(made, `User ${added.name} was added. `, ...(added.password === undefined ? []
      : ["Its password, which is not kept: ", h("code", {}, added.password)]));
    await refresh();
  });

  let going;
  const question = h("p", { id: "ask" });
  const dialog = h("dialog", { "aria-labelledby": "ask" }, question,
    h("form", { method: "dialog" },
      h("button", { value: "no", autofocus: true }, "Keep it"),
      h("button", { class: "bad", id: "really", value: "yes" }, "Delete it")));
  const askToDelete = (user) => {
    going = user;
    question.textContent = `Delete user ${user} in realm ${realm}? Its sessions end at once.`;
    dialog.returnValue = "";
    dialog.showModal();
  };
  dialog.addEventListener("close", guarded(async () => {
    if (dialog.returnValue !== "yes") return;
    const gone = await ask("/v1/accounts", { method: "DELETE", body: { name: going, realm, end_sessions: true } });
    render(made);
    notice(`User ${gone.name} was deleted; ${gone.ended} of its sessions were ended.`);
    await refresh();
  }));

  place.append(
    h("h1", { tabindex: "-1" }, "Accounts"),
    h("p", { class: "quiet" }, "Users of the database. A change counts within a second."),
    h("form", { class: "line", onsubmit: choose },
      h("div", {}, h("label", { for: "realm" }, "Realm"), chosen),
      me.realm === undefined ? h("button", {}, "Show") : null, before, after),
    may ? h("form", { class: "line", id: "add", onsubmit: add },
      h("div", {}, h("label", { for: "name" }, "New user"), name),
      h("div", {}, h("label", { for: "password" }, "Password"), password),
      h("div", {}, h("label", { for: "limit" }, "Allocations"), limit),
      h("button", { class: "main" }, "Add")) : h("p", { class: "quiet" }, "Changes need a token with the role admin."),
    made, list, dialog);
  refresh();
  return () => {};
}
