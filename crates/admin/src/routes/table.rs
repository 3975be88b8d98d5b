//! The operations of version 1: method, path, the rights that each needs, and its forms. A route
//! that is not here is refused. The document of the interface (`openapi.rs`) is made from this
//! table.

use axum::http::Method;
use schemars::{Schema, SchemaGenerator};

use crate::role::Role;
use crate::types;

/// The path of time-limited credentials, as applications know it.
pub(crate) const TURN: &str = "/turn";

/// The schema of a type.
type Form = fn(&mut SchemaGenerator) -> Schema;

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// `None` for those without a token.
    pub(crate) role: Option<Role>,
    /// A token of one realm may call it, and sees and changes that realm alone. Unset, it is about
    /// the whole server.
    pub(crate) is_by_realm: bool,
    pub(crate) summary: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// Body of the request.
    pub(crate) body: Option<Form>,
    pub(crate) answer: Answer,
}

/// A parameter of the query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) about: &'static str,
}

/// Body of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Json(Form),
    /// Server-sent events, each with such an object.
    Events(Form),
    /// The document of the interface.
    Document,
}

const fn read(path: &'static str, summary: &'static str, answer: Form) -> Operation {
    let (role, answer) = (Some(Role::Read), Answer::Json(answer));
    let (parameters, body, is_by_realm) = (&[] as &[Parameter], None, false);
    Operation { method: "GET", path, role, is_by_realm, summary, parameters, body, answer }
}

/// An operation that tokens of one realm may call as well.
const fn by_realm(operation: Operation) -> Operation {
    Operation { is_by_realm: true, ..operation }
}

const fn change(
    method: &'static str,
    path: &'static str,
    role: Role,
    summary: &'static str,
    answer: Form,
) -> Operation {
    Operation { method, role: Some(role), ..read(path, summary, answer) }
}

const fn with(parameters: &'static [Parameter], operation: Operation) -> Operation {
    Operation { parameters, ..operation }
}

const fn parameter(name: &'static str, kind: &'static str, about: &'static str) -> Parameter {
    Parameter { name, kind, about }
}

const MINT: &[Parameter] = &[
    parameter("service", "string", "`turn`"),
    parameter("username", "string", "The user, for quotas and logs; may be left out"),
    parameter("ttl", "integer", "Seconds; at most, and by default, `api.credential_lifetime`"),
    parameter("realm", "string", "By default that of the token, or the server's own"),
    parameter(
        "allocations",
        "integer",
        "Live allocations of the user; this and the next three need `auth.limits_in_names`",
    ),
    parameter("bytes_per_second", "integer", "Of each allocation, in each direction"),
    parameter("lifetime", "integer", "Seconds of an allocation from one refresh to the next"),
    parameter("peers", "string", "Prefixes of the only peers, separated by commas"),
];

const fn mint(method: &'static str) -> Operation {
    let summary = "Makes a time-limited credential; the token may be the parameter `key` or `api_key` as well";
    let answer = SchemaGenerator::subschema_for::<types::Minted>;
    by_realm(with(MINT, change(method, TURN, Role::Mint, summary, answer)))
}

const USER: Parameter =
    parameter("user", "string", "Only of this user: the name as authenticated, or its account");
const REALM: Parameter = parameter("realm", "string", "Only of this realm");
const CLIENT: Parameter =
    parameter("client", "string", "Only of clients at this IP address, at any port");
const FILTER: Parameter = parameter(
    "filter",
    "string",
    "Only with this text in a name, an address or the id; the case of letters does not count",
);
const REFUSED_USER: Parameter = parameter(
    "user",
    "string",
    "Of this user: the name as authenticated or claimed, or its account. Clients without proof are \
     counted together by network, with the latest name: those with several names are listed last",
);
const REFUSED_CLIENT: Parameter = parameter(
    "client",
    "string",
    "Only of clients at this IP address, or in its /64 of IPv6, which is counted together",
);
const LIMIT: Parameter = parameter("limit", "integer", "Most entries: 1 to 1000; 100 by default");

pub(crate) const OPERATIONS: &[Operation] = &[
    read(
        "/v1/overview",
        "The server of the last seconds, and what is wrong now",
        SchemaGenerator::subschema_for::<types::Overview>,
    ),
    read(
        "/v1/history",
        "Rates of the last hour, for as long as the process serves",
        SchemaGenerator::subschema_for::<types::TrafficHistory>,
    ),
    Operation {
        answer: Answer::Events(SchemaGenerator::subschema_for::<types::Overview>),
        ..read(
            "/v1/events",
            "The overview as server-sent events named `overview`, one each second; the stream ends after a minute, and is \
             to be opened again",
            SchemaGenerator::subschema_for::<types::Overview>,
        )
    },
    read(
        "/v1/status",
        "State of the server, and its counters since the start",
        SchemaGenerator::subschema_for::<types::Status>,
    ),
    by_realm(with(
        &[
            USER,
            REALM,
            CLIENT,
            FILTER,
            parameter(
                "sort",
                "string",
                "`age` (the default: oldest first), `expires`, `rate`, `packets`, `traffic`, `dropped`, `user` or `client`; a \
                 minus in front reverses it",
            ),
            parameter("rates", "boolean", "Adds rates; the first answer takes a second"),
            parameter(
                "peers",
                "boolean",
                "Adds the peers of each; an answer has 200 sessions at most then",
            ),
            LIMIT,
            parameter("after", "string", "The `next` of the page before, with the same `sort`"),
        ],
        read(
            "/v1/sessions",
            "Live allocations, page by page; over the network as of up to a second ago, but for those that this interface has ended",
            SchemaGenerator::subschema_for::<types::Sessions>,
        ),
    )),
    by_realm(read(
        "/v1/sessions/{id}",
        "A live allocation with its peers and its past",
        SchemaGenerator::subschema_for::<types::SessionDetails>,
    )),
    by_realm(change(
        "DELETE",
        "/v1/sessions/{id}",
        Role::Operate,
        "Ends an allocation",
        SchemaGenerator::subschema_for::<types::Ended>,
    )),
    by_realm(with(
        &[
            FILTER,
            parameter(
                "sort",
                "string",
                "`rate` (the default: highest first), `sessions`, `traffic` or `user`",
            ),
            LIMIT,
        ],
        read(
            "/v1/users",
            "Users with live allocations, as of up to a second ago",
            SchemaGenerator::subschema_for::<types::ActiveUsers>,
        ),
    )),
    with(
        &[REFUSED_USER, REFUSED_CLIENT, LIMIT],
        read(
            "/v1/refusals",
            "Recent refusals, the latest first",
            SchemaGenerator::subschema_for::<types::Refusals>,
        ),
    ),
    read(
        "/v1/configuration",
        "The configuration in force, with the place of each value",
        SchemaGenerator::subschema_for::<types::Configuration>,
    ),
    read(
        "/v1/warnings",
        "Recent warnings and errors of the log",
        SchemaGenerator::subschema_for::<types::Warnings>,
    ),
    Operation {
        body: Some(SchemaGenerator::subschema_for::<types::ReloadRequest>),
        ..change(
            "POST",
            "/v1/reload",
            Role::Operate,
            "Reads the configuration again; without a body sessions go on",
            SchemaGenerator::subschema_for::<types::Reload>,
        )
    },
    mint("GET"),
    mint("POST"),
    by_realm(read(
        "/v1/revocations",
        "Credentials that are refused, oldest first",
        SchemaGenerator::subschema_for::<types::Revocations>,
    )),
    by_realm(Operation {
        body: Some(SchemaGenerator::subschema_for::<types::Revoke>),
        ..change(
            "POST",
            "/v1/revocations",
            Role::Operate,
            "Refuses a user, a credential, a shared secret or a token key from now on, and ends its sessions",
            SchemaGenerator::subschema_for::<types::Revoked>,
        )
    }),
    by_realm(Operation {
        body: Some(SchemaGenerator::subschema_for::<types::Revoke>),
        ..change(
            "DELETE",
            "/v1/revocations",
            Role::Admin,
            "Takes a revocation back",
            SchemaGenerator::subschema_for::<types::Revocation>,
        )
    }),
    by_realm(with(
        &[
            parameter("realm", "string", "By default that of the token, or the server's own"),
            LIMIT,
            parameter("after", "string", "The `next` of the page before"),
        ],
        read(
            "/v1/accounts",
            "Users of the database, in the order of their names",
            SchemaGenerator::subschema_for::<types::Accounts>,
        ),
    )),
    by_realm(Operation {
        body: Some(SchemaGenerator::subschema_for::<types::AddAccount>),
        ..change(
            "POST",
            "/v1/accounts",
            Role::Admin,
            "Adds a user to the database, who can log in within a second",
            SchemaGenerator::subschema_for::<types::AddedAccount>,
        )
    }),
    by_realm(Operation {
        body: Some(SchemaGenerator::subschema_for::<types::DeleteAccount>),
        ..change(
            "DELETE",
            "/v1/accounts",
            Role::Admin,
            "Deletes a user of the database, who can log in no more within a second",
            SchemaGenerator::subschema_for::<types::DeletedAccount>,
        )
    }),
    by_realm(Operation {
        body: Some(SchemaGenerator::subschema_for::<types::ForgetAccounts>),
        ..change(
            "POST",
            "/v1/accounts/forget",
            Role::Admin,
            "Forgets users that were changed in the database, so that an outage serves no earlier ones",
            SchemaGenerator::subschema_for::<types::ForgottenAccounts>,
        )
    }),
    read(
        "/v1/traces",
        "Clients and users that are logged in detail",
        SchemaGenerator::subschema_for::<types::Traces>,
    ),
    Operation {
        body: Some(SchemaGenerator::subschema_for::<types::Trace>),
        ..change(
            "POST",
            "/v1/traces",
            Role::Operate,
            "Logs the events of a client or user in detail, for a time",
            SchemaGenerator::subschema_for::<types::Traces>,
        )
    },
    change(
        "DELETE",
        "/v1/traces",
        Role::Operate,
        "Logs no client in detail any more",
        SchemaGenerator::subschema_for::<types::Traces>,
    ),
    Operation {
        body: Some(SchemaGenerator::subschema_for::<types::DrainRequest>),
        ..change(
            "POST",
            "/v1/drain",
            Role::Admin,
            "Takes no new allocations, and stops the server when the last one has ended",
            SchemaGenerator::subschema_for::<types::Drain>,
        )
    },
    change(
        "DELETE",
        "/v1/drain",
        Role::Admin,
        "Cancels a drain",
        SchemaGenerator::subschema_for::<types::DrainCancelled>,
    ),
    Operation {
        role: None,
        body: Some(SchemaGenerator::subschema_for::<types::SignIn>),
        ..change(
            "POST",
            "/v1/sign-in",
            Role::Read,
            "Exchanges a token for the cookie of a browser; not on the control socket",
            SchemaGenerator::subschema_for::<types::Me>,
        )
    },
    by_realm(change(
        "POST",
        "/v1/sign-out",
        Role::Read,
        "Ends the cookie of a browser; not on the control socket",
        SchemaGenerator::subschema_for::<types::Me>,
    )),
    by_realm(read(
        "/v1/me",
        "Name, role and realm of the caller's token; not on the control socket",
        SchemaGenerator::subschema_for::<types::Me>,
    )),
    by_realm(Operation {
        answer: Answer::Document,
        ..read("/v1/openapi.json", "This document", SchemaGenerator::subschema_for::<types::Me>)
    }),
];

/// Rights of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    pub(crate) role: Role,
    /// A token of one realm has them as well.
    pub(crate) is_by_realm: bool,
}

/// The rights that a request needs; `None` for one that is not in the table.
pub(crate) fn needed(method: &Method, path: &str) -> Option<Needed> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let found = OPERATIONS.iter().find(|one| one.method == method && one.path == path);
    let operation = found?;
    Some(Needed { role: operation.role?, is_by_realm: operation.is_by_realm })
}

/// All operations in a line.
pub(crate) fn summary() -> String {
    let all: Vec<_> = OPERATIONS.iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    all.join(", ")
}
