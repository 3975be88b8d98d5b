// Sign-in, the choice of a view by the address, and what views share.
import { ask } from "./api.js";
import { h, isHeld, prose, render } from "./dom.js";
import * as overview from "./overview.js";
import * as sessions from "./sessions.js";
import * as session from "./session.js";
import * as accounts from "./accounts.js";
import * as lists from "./lists.js";

const VIEWS = {
  overview: overview.show,
  sessions: sessions.show,
  session: session.show,
  users: lists.users,
  accounts: accounts.show,
  refusals: lists.refusals,
  configuration: lists.configuration,
  log: lists.log,
};

/** The views of a token that is for one realm. */
const OF_A_REALM = ["sessions", "session", "users", "accounts"];

const main = document.getElementById("main");
const header = document.getElementById("header");
let me;
let host = "";
let stop = () => {};

function notice(text) {
  render(document.getElementById("notice"), prose(text));
}

/** Runs something that asks the server; errors are shown, and a lost sign-in leads to the form. */
function guarded(action) {
  return async (...values) => {
    try {
      await action(...values);
      if (document.getElementById("notice").dataset.error) {
        delete document.getElementById("notice").dataset.error;
        notice("");
      }
    } catch (error) {
      if (error.status === 401) return signIn(error.message);
      document.getElementById("notice").dataset.error = "yes";
      notice(`${error.message}${error.hint ? `: ${error.hint}` : ""}`);
    }
  };
}

/** Calls `action` now and again while the page is seen and not held; returns the end of it. */
function every(action, milliseconds) {
  let timer;
  let ended = false;
  const next = async (isFirst) => {
    // An answer may arrive while the page is held: the action checks before it shows one.
    if (isFirst) await action();
    else if (!document.hidden && !isHeld()) await action(isHeld);
    if (!ended) timer = setTimeout(next, milliseconds);
  };
  next(true);
  return () => { ended = true; clearTimeout(timer); };
}

/** Passes each overview of the server's stream on; returns the end of it. */
function onOverview(action) {
  const events = new EventSource("/v1/events");
  events.addEventListener("overview", (event) => action(JSON.parse(event.data)));
  // The stream does not tell why it ended; the browser opens it again by itself, unless the answer was an error.
  events.addEventListener("error", guarded(async () => {
    await ask("/v1/me");
    if (events.readyState === EventSource.CLOSED) throw Object.assign(new Error("the server sends no overview"), { hint: "too many pages may be open; load this one again" });
  }));
  return () => events.close();
}

function route() {
  if (me === undefined) return;
  stop();
  const [, name, ...rest] = location.hash.split("/");
  const of = me.realm === undefined ? Object.keys(VIEWS) : OF_A_REALM;
  const view = of.includes(name) ? name : of[0];
  for (const link of document.querySelectorAll("nav a")) {
    link.parentElement.hidden = !of.includes(link.getAttribute("href").slice(2));
    const is = link.getAttribute("href") === `#/${view === "session" ? "sessions" : view}`;
    if (is) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  main.replaceChildren();
  stop = VIEWS[view](main, { guarded, every, onOverview, notice, me }, rest.join("/")) ?? (() => {});
  entitle();
  main.querySelector("h1").focus();
}

/** Names the window: operators have windows of several servers. */
function entitle() {
  const title = main.querySelector("h1").textContent;
  document.title = [title === "Overview" && host !== "" ? "" : title, host, "Turnpike"].filter((part) => part !== "").join(" · ");
  document.getElementById("host").textContent = host;
}

function signIn(why = "") {
  stop();
  stop = () => {};
  me = undefined;
  host = "";
  header.hidden = true;
  notice("");
  const token = h("input", { type: "password", id: "token", autocomplete: "current-password", required: true, "aria-describedby": "how" });
  const error = h("p", { class: "error", role: "alert" }, prose(why));
  const submit = async (event) => {
    event.preventDefault();
    try {
      me = await ask("/v1/sign-in", { method: "POST", body: { token: token.value } });
      begin();
    } catch (problem) {
      render(error, prose(problem.status === 401 ? `${problem.message}.` : `${problem.message}: ${problem.hint}.`));
      token.focus();
    }
  };
  main.replaceChildren(h("form", { class: "sign-in", onsubmit: submit },
    h("h1", {}, "Turnpike"),
    h("label", { for: "token" }, "Token"), token,
    h("button", { class: "main" }, "Sign in"), error,
    h("p", { class: "quiet", id: "how" }, "Make a token on the server with ", h("code", {}, "turnpike token add NAME --role operate"), ".")));
  document.title = "Sign in · Turnpike";
  token.focus();
}

function begin() {
  header.hidden = false;
  document.getElementById("who").textContent = `${me.token} (${me.role}${me.realm === undefined ? "" : `, realm ${me.realm}`})`;
  route();
  if (me.realm === undefined) nameHost();
}

const nameHost = guarded(async () => {
  const now = await ask("/v1/overview");
  if (me === undefined) return; // signed out meanwhile
  host = now.host;
  entitle();
});

document.getElementById("sign-out").addEventListener("click", guarded(async () => {
  await ask("/v1/sign-out", { method: "POST" });
  signIn();
}));
// A notice stays for the view that it leads to.
let told = "";
window.addEventListener("hashchange", () => {
  const text = document.getElementById("notice").textContent;
  if (text === told) notice("");
  told = document.getElementById("notice").textContent;
  route();
});
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });

try {
  me = await ask("/v1/me");
  begin();
} catch (error) {
  signIn(error.status === 401 ? "" : error.message);
}
