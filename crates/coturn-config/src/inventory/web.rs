//! Pages of the web interface.

use super::State::{Missing, Replaced};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "Web interface",
    text: "The page of `[api]` and its interface for programs replace it: [The page](../operate/page.md), \
           [API](../operate/api.md). Settings are changed in the file, and reloaded: the file is the one truth.",
    items: ITEMS,
};

const CHANGE: &str = "the configuration, and `POST /v1/reload` or the page's button";

const ITEMS: &[Item] = &[
    item(
        "/logon; /logout",
        "log in and out",
        Replaced("the page's sign-in by a token (`turnpike token add`)"),
    ),
    item("/home", "menu", Replaced("the page's overview")),
    item("/pc", "configuration", Replaced("the page's configuration, `GET /v1/configuration`")),
    item("/toggle", "toggle a parameter", Replaced(CHANGE)),
    item("/update", "change quotas and peer rules", Replaced(CHANGE)),
    item(
        "/ps",
        "sessions; cancel one",
        Replaced("the page's sessions, `GET /v1/sessions`, `DELETE /v1/sessions/{id}`"),
    ),
    item("/us", "users", Replaced("the page's accounts, `/v1/accounts`, `turnpike user`")),
    item("/ss", "shared secrets", Replaced("`auth.secrets` in the configuration")),
    item("/os", "origins", Replaced("`realms`, key `origins`, in the configuration")),
    item("/oauth", "keys of access tokens", Replaced("`auth.token_keys` in the configuration")),
    item("/oauth_show_keys", "show such a key", Missing("keys are not shown")),
];
