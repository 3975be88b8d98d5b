//! Lines of the log.

use super::State::{Missing, Replaced};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "Log lines",
    text: "Lines are events with fields, of the same names as in metrics and commands; `log.format = \"logfmt\"` writes them \
           as `key=value` pairs. Reasons: [Reasons](../operate/reasons.md). Fields that replace the parts of coturn's lines: \
           `user`, `realm`, `client`, `reason`, `code`, `method`, `peer`. A refused request is logged once a minute for its client \
           and reason, with `times`.",
    items: ITEMS,
};

const STATUS: &str = "`turnpike status`";

const ITEMS: &[Item] = &[
    item(
        "incoming packet METHOD processed, error N: REASON",
        "a refused request",
        Replaced(
            "`request refused`, with `client`, `method`, `user` or `claimed_user`, `reason`, `code`",
        ),
    ),
    item(
        "incoming packet METHOD processed, success",
        "an accepted request",
        Missing(
            "the allocation's line when it ends; in detail `turnpike log-level debug --user NAME`",
        ),
    ),
    item(
        "new, realm=R, username=U, lifetime=N",
        "a new allocation",
        Replaced("`allocation created`, at level `debug`"),
    ),
    item(
        "refreshed, realm=R, username=U, lifetime=N",
        "a refresh",
        Missing("`turnpike sessions` shows the time that is left"),
    ),
    item(
        "usage: realm=R, username=U, rp=, rb=, sp=, sb=",
        "traffic with the client",
        Replaced(
            "`allocation ended`: `to_peer_packets`, `to_peer_bytes`, `to_client_packets`, `to_client_bytes`",
        ),
    ),
    item("peer usage:", "traffic with peers", Replaced("`allocation ended`, the same fields")),
    item(
        "delete: realm=R, username=U",
        "the end of an allocation",
        Replaced("`allocation ended`, with `reason`"),
    ),
    item(
        "closed (2nd stage), user <U> realm <R> origin <O>, local A, remote B, reason: TEXT",
        "the end of a session",
        Replaced("`allocation ended`; for a connection `connection closed`"),
    ),
    item(
        "peer IP lifetime updated",
        "permissions",
        Missing("`turnpike sessions --peers` shows them"),
    ),
    item(
        "A peer IP x denied in the range",
        "a refused peer",
        Replaced("`request refused` with `reason=peer_forbidden`, `peer`, `rule`, `rule_at`"),
    ),
    item(
        "Cannot find credentials of user",
        "an unknown user",
        Replaced("`request refused` with `reason=unknown_user`"),
    ),
    item(
        "credentials are incorrect",
        "a wrong password",
        Replaced("`request refused` with `reason=wrong_password` or `wrong_secret`"),
    ),
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
