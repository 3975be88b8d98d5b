//! The page: its files are part of the program. It loads nothing from elsewhere, and runs no script
//! but its own.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// Script, style, images and requests of this server alone; no markup from strings
/// (`trusted-types`).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// Path, type and content.
const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/page/style.css", CSS, include_str!("page/style.css")),
    ("/page/icon.svg", SVG, include_str!("page/icon.svg")),
    ("/page/app.js", SCRIPT, include_str!("page/app.js")),
    ("/page/accounts.js", SCRIPT, include_str!("page/accounts.js")),
    ("/page/api.js", SCRIPT, include_str!("page/api.js")),
    ("/page/chart.js", SCRIPT, include_str!("page/chart.js")),
    ("/page/dom.js", SCRIPT, include_str!("page/dom.js")),
    ("/page/format.js", SCRIPT, include_str!("page/format.js")),
    ("/page/lists.js", SCRIPT, include_str!("page/lists.js")),
    ("/page/overview.js", SCRIPT, include_str!("page/overview.js")),
    ("/page/session.js", SCRIPT, include_str!("page/session.js")),
    ("/page/sessions.js", SCRIPT, include_str!("page/sessions.js")),
];

/// The files of the page, which anybody may read: they hold nothing of the server.
pub(crate) fn router() -> Router {
    FILES.iter().fold(Router::new(), |router, &(path, kind, content)| {
        router.route(
            path,
            get(async move || {
                let headers =
                    [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)];
                (headers, content).into_response()
            }),
        )
    })
}
