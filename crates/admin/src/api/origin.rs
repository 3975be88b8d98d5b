//! Requests that a page of another site makes a browser send.
//!
//! A browser says where a request comes from (`Sec-Fetch-Site`, `Origin`), which no page can
//! change. A name that leads to loopback (DNS rebinding) makes another site look the same; there
//! the `Host` has to be of this host.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};

/// Returns whether no other site has a part in the request.
pub(crate) fn is_own(headers: &HeaderMap) -> bool {
    let site = text(headers, "sec-fetch-site");
    if !site.is_none_or(|site| matches!(site, "same-origin" | "none")) {
        return false;
    }
    match text(headers, header::ORIGIN.as_str()) {
        None => !headers.contains_key(header::ORIGIN),
        Some(origin) => {
            let at = origin.split_once("://").map(|(_, at)| at);
            at.is_some() && at == text(headers, header::HOST.as_str())
        }
    }
}

/// Returns whether a browser says that its own page sends the request: needed for changes by a
/// cookie.
pub(crate) fn is_stated(headers: &HeaderMap) -> bool {
    text(headers, "sec-fetch-site") == Some("same-origin") || headers.contains_key(header::ORIGIN)
}

/// Returns whether the `Host` is an address or `localhost`.
pub(crate) fn is_host_of_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = text(headers, header::HOST.as_str()) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((v6, _)) => v6,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Returns whether the `Host` is nobody's domain: what a client of the control socket sends, such
/// as `localhost` or `turnpike`. A domain comes from a browser that was led here, through a tunnel
/// to the socket.
pub(crate) fn is_host_of_socket(headers: &HeaderMap) -> bool {
    let is_domain = text(headers, header::HOST.as_str()).is_some_and(|host| host.contains('.'));
    !is_domain || is_host_of_loopback(headers)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn other_sites_are_known_by_what_the_browser_says() {
        let host = ("host", "turn.example.org:9642");
        for (more, own) in [
            (vec![], true),
            (vec![("sec-fetch-site", "same-origin")], true),
            (vec![("sec-fetch-site", "none")], true),
            (vec![("sec-fetch-site", "cross-site")], false),
            (vec![("sec-fetch-site", "same-site")], false),
            (vec![("origin", "https://turn.example.org:9642")], true),
            (vec![("origin", "https://turn.example.org")], false),
            (vec![("origin", "https://evil.example")], false),
            (vec![("origin", "null")], false),
        ] {
            let all: Vec<_> = std::iter::once(host).chain(more).collect();
            assert_eq!(is_own(&headers(&all)), own, "{all:?}");
        }
        let strange = axum::http::HeaderValue::from_bytes(b"https://\xff").unwrap();
        let mut all = headers(&[host]);
        all.insert(header::ORIGIN, strange);
        assert!(!is_own(&all));
    }

    #[test]
    fn names_that_were_made_to_lead_here_are_refused() {
        for (host, good) in [
            ("localhost:9642", true),
            ("LocalHost", true),
            ("127.0.0.1:9642", true),
            ("[::1]:9642", true),
            ("evil.example:9642", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_host_of_loopback(&headers(&[("host", host)])), good, "{host}");
        }
        assert!(!is_host_of_loopback(&HeaderMap::new()));
        for (host, good) in [
            ("turnpike", true),
            ("localhost:8080", true),
            ("127.0.0.1:8080", true),
            ("evil.example:8080", false),
        ] {
            assert_eq!(is_host_of_socket(&headers(&[("host", host)])), good, "{host}");
        }
    }
}
