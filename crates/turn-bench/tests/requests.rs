//! Requests to a real server on the loopback.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support;

use turn_bench::cpu::Watched;
use turn_bench::outcome::Requests;
use turn_bench::requests::{self, Kind, RequestSpec};
use turn_bench::session::Login;
use turn_bench::traffic::Transport;
use turn_types::IpFamily;

use crate::support::{Server, TRANSPORTS};

/// No rate limit of unauthenticated responses.
const OPEN_HANDED: &str = "[quotas]\nunauthenticated_responses_per_second = 0";

fn spec(server: SocketAddr, kind: Kind) -> RequestSpec {
    RequestSpec {
        kind,
        server,
        transport: Transport::Udp,
        local: None,
        login: Some(Server::login()),
        family: IpFamily::V4,
        in_flight: 8,
        threads: 1,
        rate: None,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(300),
    }
}

fn run(spec: &RequestSpec) -> Requests {
    requests::run(spec, &Watched::default()).unwrap()
}

/// Everything that was begun ended well.
fn assert_all_succeeded(requests: &Requests) {
    assert_eq!(requests.failed, []);
    assert!(requests.succeeded > 0);
    assert_eq!(requests.succeeded, requests.started);
    assert!(requests.latency.is_some());
}

#[test]
fn allocations_are_made_and_given_back() {
    let server = Server::start_secure(OPEN_HANDED);
    for transport in TRANSPORTS {
        let mut spec = spec(server.address, Kind::Allocation { release: true });
        (spec.threads, spec.transport) = (2, transport);
        let requests = run(&spec);
        assert_all_succeeded(&requests);
        assert_eq!(requests.transport, transport);
        // Challenge, allocation, release.
        assert!(requests.datagrams.1 >= requests.succeeded, "{requests:?}");
    }
}

#[test]
fn an_allocation_cannot_outlive_its_connection() {
    let server = Server::start(OPEN_HANDED);
    let mut spec = spec(server.address, Kind::Allocation { release: false });
    spec.transport = Transport::Tcp;
    let said = requests::run(&spec, &Watched::default()).unwrap_err().to_string();
    assert!(said.contains("--no-release wants UDP"), "{said}");
}

#[test]
fn no_more_than_a_quota_are_held_at_a_time() {
    // Were anything left behind, the quota would soon be full.
    let server = Server::start(
        "[quotas]\nallocations_per_user = 8\nunauthenticated_responses_per_second = 0",
    );
    assert_all_succeeded(&run(&spec(server.address, Kind::Allocation { release: true })));
}

#[test]
fn without_release_the_quota_fills_up_and_is_told() {
    let server = Server::start(
        "[quotas]\nallocations_per_user = 20\nunauthenticated_responses_per_second = 0",
    );
    let mut spec = spec(server.address, Kind::Allocation { release: false });
    spec.warm_up = Duration::ZERO;
    let requests = run(&spec);
    assert_eq!(requests.succeeded, 20);
    let (why, times) = &requests.failed[0];
    assert!(why.contains("486") && *times > 0, "{requests:?}");
}

#[test]
fn a_fixed_rate_is_kept() {
    let server = Server::start(OPEN_HANDED);
    for kind in [Kind::Allocation { release: true }, Kind::Binding] {
        let requests = run(&RequestSpec { rate: Some(100), ..spec(server.address, kind) });
        assert_all_succeeded(&requests);
        assert_eq!(requests.started, 30);
    }
}

#[test]
fn bindings_are_answered() {
    let server = Server::start_secure(OPEN_HANDED);
    for transport in TRANSPORTS {
        let spec = spec(server.address, Kind::Binding);
        assert_all_succeeded(&run(&RequestSpec { login: None, transport, ..spec }));
    }
}

#[test]
fn a_wrong_secret_is_told_before_measuring() {
    let server = Server::start("");
    let mut spec = spec(server.address, Kind::Allocation { release: true });
    spec.login = Some(Login::shared_secret("bench", "another"));
    let said = format!("{:#}", requests::run(&spec, &Watched::default()).unwrap_err());
    assert!(said.contains("the secret is not the server's"), "{said}");
}

#[test]
fn a_server_that_ends_is_told_as_failures() {
    let nobody = support::free_address();
    let requests = run(&spec(nobody, Kind::Binding));
    assert_eq!(requests.succeeded, 0);
    assert!(requests.failed.iter().any(|(why, _)| why.contains("is unreachable")));
}
