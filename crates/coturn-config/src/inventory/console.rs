//! The console, over telnet.

use super::State::{NotNeeded, Replaced};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "Console (telnet)",
    text: "Commands of Turnpike talk to the server over a socket in its data directory, which its owner and the group of \
           `control.group` may use: no password, and no port. Each has `--json` for programs.",
    items: ITEMS,
};

const SHELL: &str = "commands run in a shell";
const REDIRECT: &str = "`redirect` in the configuration, and `turnpike reload`";

const ITEMS: &[Item] = &[
    item("?; h; help", "help", Replaced("`turnpike help`")),
    item("quit; q; exit; bye", "leave", NotNeeded(SHELL)),
    item("drain", "no new sessions, then end", Replaced("`turnpike drain`")),
    item(
        "stop; shutdown; halt",
        "end the server",
        Replaced("`systemctl stop turnpike`, or SIGTERM"),
    ),
    item(
        "pc",
        "print the configuration",
        Replaced("the page and `GET /v1/configuration` of `[api]`; `turnpike status`"),
    ),
    item(
        "sr; ur",
        "choose a realm for the next commands",
        Replaced("`--realm`, where a command has it"),
    ),
    item("so; uo", "choose a realm by its origin", Replaced("`--realm`, where a command has it")),
    item("tc", "toggle a parameter", Replaced("the configuration, and `turnpike reload`")),
    item("cc", "change a parameter", Replaced("the configuration, and `turnpike reload`")),
    item(
        "ps",
        "list sessions, of a user perhaps",
        Replaced("`turnpike sessions --user NAME --peers`"),
    ),
    item(
        "psp",
        "list sessions of users by a part of the name",
        Replaced("`turnpike sessions --json`, filtered by `jq`"),
    ),
    item(
        "psd",
        "write that list to a file of the server",
        Replaced("`turnpike sessions --json > FILE`"),
    ),
    item("pu", "list users with sessions", Replaced("`turnpike sessions --sort user`")),
    item(
        "lr",
        "reopen the log",
        Replaced("`turnpike reload` or SIGHUP, under the name `turnserver`"),
    ),
    item("aas; das", "add or delete an alternate server", Replaced(REDIRECT)),
    item("atas; dtas", "the same for TLS", Replaced(REDIRECT)),
    item("atcpas; dtcpas", "the same for TCP", Replaced(REDIRECT)),
    item("audpas; dudpas", "the same for UDP", Replaced(REDIRECT)),
    item("cs", "end a session", Replaced("`turnpike session end`")),
];
