//! The operations of version 1: method, path and the rights that each needs. A route that is not here is refused.

use axum::http::Method;

use crate::role::Role;

/// An operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) role: Role,
}

const fn operation(method: &'static str, path: &'static str, role: Role) -> Operation {
    Operation { method, path, role }
}

pub(crate) const OPERATIONS: &[Operation] = &[
    operation("GET", "/v1/status", Role::Read),
    operation("GET", "/v1/sessions", Role::Read),
    operation("DELETE", "/v1/sessions/{id}", Role::Operate),
    operation("GET", "/v1/refusals", Role::Read),
    operation("POST", "/v1/reload", Role::Operate),
    operation("POST", "/v1/drain", Role::Admin),
    operation("DELETE", "/v1/drain", Role::Admin),
    operation("GET", "/v1/me", Role::Read),
    operation("POST", "/v1/sign-out", Role::Read),
];

/// The rights that a request needs; `None` for one that is not in the table.
pub(crate) fn needed(method: &Method, path: &str) -> Option<Role> {
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let found = OPERATIONS.iter().find(|one| one.method == method && one.path == path);
    found.map(|operation| operation.role)
}

/// All operations in a line.
pub(crate) fn summary() -> String {
    let all: Vec<_> = OPERATIONS.iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    all.join(", ")
}
