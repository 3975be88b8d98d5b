//! Lines of the log.

use super::State::{Missing, Replaced, Same};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "Log lines",
    text: "`log.format = \"coturn\"` writes the lines that are the same below, also under the name `turnserver` \
           (`TURNPIKE_LOG__FORMAT=coturn`); sessions have 18 digits. Otherwise lines are events with fields, of the same names as in metrics and commands; `log.format = \"logfmt\"` writes them \
           as `key=value` pairs. Reasons: [Reasons](../operate/reasons.md). Fields that replace the parts of coturn's lines: \
           `user`, `realm`, `client`, `reason`, `code`, `method`, `peer`. A refused request is logged once a minute for its client \
           and reason, with `times`.",
    items: ITEMS,
};

const FORMAT: &str = "`log.format = \"coturn\"`";
const DEBUG: &str = "`log.format = \"coturn\"`, at level `debug`";
const REFUSED: &str = "`log.format = \"coturn\"`, once a minute for its client and reason, both of which stand behind; the session is 0";

const STATUS: &str = "`turnpike status`";

const ITEMS: &[Item] = &[
    item("incoming packet METHOD processed, error N: REASON", "a refused request", Same(REFUSED)),
    item(
        "incoming packet METHOD processed, success",
        "an accepted request",
        Missing(
            "the allocation's line when it ends; in detail `turnpike log-level debug --user NAME`",
        ),
    ),
    item("new, realm=R, username=U, lifetime=N", "a new allocation", Same(DEBUG)),
    item("refreshed, realm=R, username=U, lifetime=N", "a refresh", Same(DEBUG)),
    item(
        "usage: realm=R, username=U, rp=, rb=, sp=, sb=",
        "traffic with the client",
        Same("`log.format = \"coturn\"`, at the end alone; payload"),
    ),
    item(
        "peer usage:",
        "traffic with peers",
        Same("`log.format = \"coturn\"`, at the end alone; payload"),
    ),
    item("delete: realm=R, username=U", "the end of an allocation", Same(FORMAT)),
    item(
        "closed (2nd stage), user <U> realm <R> origin <O>, local A, remote B, reason: TEXT",
        "the end of a session",
        Same(
            "`log.format = \"coturn\"`; the origin is empty, and the reason one of [Reasons](../operate/reasons.md)",
        ),
    ),
    item(
        "peer IP lifetime updated",
        "permissions",
        Missing("`turnpike sessions --peers` shows them"),
    ),
    item(
        "A peer IP x denied in the range",
        "a refused peer",
        Same("`log.format = \"coturn\"`, where a rule of the configuration denies it"),
    ),
    item("Cannot find credentials of user", "an unknown user", Same(REFUSED)),
    item("credentials are incorrect", "a wrong password", Same(REFUSED)),
    item(
        "401 rate-limit exceeded from IP",
        "a budget that is spent",
        Replaced(
            "`clients of this network get no answers for now: its budget is spent`, with `source`, `budget`",
        ),
    ),
    item(
        "mobility handoff completed",
        "a moved client",
        Replaced("`turnpike_allocations_moved_total`"),
    ),
    item(
        "Total auth threads:",
        "the server is ready",
        Replaced("`ready`, `sd_notify`, and `/readyz` of `[http]`"),
    ),
    item(
        "Coturn Version",
        "the version",
        Replaced("the first line of the log, and `turnpike status`"),
    ),
    item(
        "Listener address to use; Relay address to use",
        "addresses",
        Replaced("`listening on …`, `relaying from …`"),
    ),
    item("TLS 1.3 supported; DTLS 1.2 supported", "features of the build", Replaced(STATUS)),
];
