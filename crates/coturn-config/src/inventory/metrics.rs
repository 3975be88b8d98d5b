//! Metrics of the exporter for Prometheus.

use super::State::{Missing, NotNeeded, Replaced, Same};
use super::{Item, Part, item};

pub(super) const PART: Part = Part {
    title: "Metrics",
    text: "With `http.coturn_metrics = true`. Coturn adds the traffic of a session when the session ends; here it counts as it \
           passes. All metrics: [Metrics](../operate/metrics.md).",
    items: ITEMS,
};

const PASSES: &str = "counted as it passes";
const NO_USERS: &str = "user names are no labels; `turnpike sessions` has traffic by user, `turn_total_traffic_*` the sum";
const BATCHES: &str = "`turnpike_messages_per_receive`, `turnpike_datagrams_per_sent_message`";

const ITEMS: &[Item] = &[
    item("turn_total_allocations", "live allocations by `type`", Same("without SCTP")),
    item(
        "turn_total_traffic_rcvp; turn_total_traffic_rcvb",
        "from clients: packets, bytes",
        Same(PASSES),
    ),
    item("turn_total_traffic_sentp; turn_total_traffic_sentb", "to clients", Same(PASSES)),
    item("turn_total_traffic_peer_rcvp; turn_total_traffic_peer_rcvb", "from peers", Same(PASSES)),
    item("turn_total_traffic_peer_sentp; turn_total_traffic_peer_sentb", "to peers", Same(PASSES)),
    item("turn_packet_processed", "packets received", Same("")),
    item("turn_packet_dropped", "packets dropped", Same("by reason: `turnpike_drops_total`")),
    item(
        "turn_unauthenticated_401_responses",
        "challenges sent",
        Same("of all transports, where coturn counts UDP alone"),
    ),
    item(
        "turn_unauthenticated_401_requests",
        "requests that call for a challenge",
        Replaced(
            "`turn_unauthenticated_401_responses` and the requests over the budget, in `turnpike_drops_total`",
        ),
    ),
    item(
        "turn_unauthenticated_401_dropped_responses",
        "challenges over the limit",
        Replaced("`turnpike_drops_total`, by reason"),
    ),
    item(
        "turn_ratelimit_hash_collisions; turn_ratelimit_occupied_buckets; turn_ratelimit_total_buckets",
        "state of the limiter",
        NotNeeded("the limiter has one budget for each network"),
    ),
    item(
        "turn_traffic_rcvp; turn_traffic_rcvb; turn_traffic_sentp; turn_traffic_sentb",
        "traffic of clients by `realm`, perhaps `user`",
        Missing(NO_USERS),
    ),
    item(
        "turn_traffic_peer_rcvp; turn_traffic_peer_rcvb; turn_traffic_peer_sentp; turn_traffic_peer_sentb",
        "traffic of peers by `realm`, perhaps `user`",
        Missing(NO_USERS),
    ),
    item(
        "stun_binding_request; stun_binding_response; stun_binding_error",
        "Binding requests and answers",
        Missing(
            "answers to Binding are in `turnpike_fates_total`, refusals in `turnpike_refusals_total`",
        ),
    ),
    item(
        "turn_udp_recvmmsg_calls; turn_udp_recvmmsg_packets",
        "batches of received packets",
        Replaced(BATCHES),
    ),
    item(
        "turn_udp_sendmmsg_flushes; turn_udp_sendmmsg_datagrams; turn_udp_sendmmsg_gso_datagrams",
        "batches of sent packets",
        Replaced(BATCHES),
    ),
];
