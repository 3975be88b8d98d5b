//! Reasons that no world produces: with the test that does, or without one yet.

use control::{AssociationEnd, Series, StreamEnd};
use turn_proto::DropReason;

/// The reason, and the test as `crate/file::function`.
pub(crate) const ELSEWHERE: &[(Series, &str)] = &[
    (
        Series::Drop(DropReason::UnexpectedMethod),
        "turn-proto/tests/rfc/rfc3489_classic.rs::only_binding_is_left_of_it",
    ),
    (
        Series::Drop(DropReason::UnexpectedResponse),
        "turn-proto/tests/rfc/rfc8489_s06_processing.rs::responses_are_dropped_in_silence",
    ),
    (
        Series::Drop(DropReason::BindingIndication),
        "turn-proto/tests/rfc/rfc8489_s06_processing.rs::a_binding_indication_has_no_effect",
    ),
    (
        Series::Drop(DropReason::UnknownAttribute),
        "turn-proto/tests/rfc/rfc8489_s06_processing.rs::an_indication_with_an_unknown_required_attribute_is_dropped",
    ),
    (
        Series::Drop(DropReason::BadFingerprint),
        "turn-proto/tests/rfc/rfc8489_s06_processing.rs::fingerprint_is_optional_and_checked",
    ),
    (
        Series::Drop(DropReason::TooManyPending),
        "turn-proto/tests/rfc/rfc8656_s07_answer.rs::waiting_requests_are_bounded",
    ),
    (
        Series::Drop(DropReason::Moving),
        "turn-proto/tests/rfc/rfc8016_workers.rs::a_queue_is_bounded",
    ),
    (
        Series::Drop(DropReason::MalformedSend),
        "turn-proto/tests/rfc/rfc8656_s11_send_data.rs::a_send_without_peer_or_data_is_dropped",
    ),
    (
        Series::Drop(DropReason::RelaysTcp),
        "turn-proto/tests/rfc/rfc6062_s5_peers.rs::datagrams_are_not_for_tcp_allocations",
    ),
    (
        Series::Drop(DropReason::Bandwidth),
        "turn-proto/tests/rfc/rfc8656_s05_general.rs::bandwidth_is_limited_in_each_direction",
    ),
    (
        Series::Drop(DropReason::TtlExpired),
        "dataplane/tests/relay.rs::ttl_is_counted_down_and_traffic_class_carried_on_both_legs",
    ),
    (
        Series::Drop(DropReason::RelayClosed),
        "turn-proto/tests/rfc/rfc8656_s09_permissions.rs::a_datagram_to_a_closed_relay_says_so",
    ),
    (
        Series::Drop(DropReason::TooLong),
        "dataplane/tests/dtls.rs::data_goes_both_ways_by_channels_and_indications",
    ),
    (
        Series::Drop(DropReason::IcmpIgnored),
        "turn-proto/tests/rfc/rfc8656_s11_send_data.rs::other_icmp_is_ignored",
    ),
    (
        Series::Drop(DropReason::StreamBacklog),
        "dataplane/tests/streams.rs::who_reads_nothing_loses_the_oldest_data_and_no_answer",
    ),
    (
        Series::Drop(DropReason::DtlsHelloInPieces),
        "dataplane/tests/dtls.rs::what_belongs_to_no_association_is_dropped_by_reason",
    ),
    (
        Series::Drop(DropReason::DtlsMalformed),
        "dataplane/tests/dtls.rs::what_belongs_to_no_association_is_dropped_by_reason",
    ),
    (
        Series::Drop(DropReason::DtlsNoPlace),
        "dataplane/tests/dtls.rs::places_are_bounded_by_address",
    ),
    (
        Series::Drop(DropReason::DtlsBusy),
        "dataplane/tests/dtls.rs::an_address_has_a_share_of_the_time_and_others_are_served_at_once",
    ),
    (
        Series::Drop(DropReason::DtlsCookieUsed),
        "dataplane/tests/dtls.rs::a_cookie_begins_one_association",
    ),
    (
        Series::StreamsEnded(StreamEnd::Stuck),
        "dataplane/src/stream/deadlines.rs::each_state_has_its_deadline",
    ),
    (
        Series::AssociationsEnded(AssociationEnd::ByClient),
        "dataplane/tests/dtls.rs::a_client_that_goes_takes_its_allocation_along",
    ),
    (
        Series::AssociationsEnded(AssociationEnd::CrowdedOut),
        "dataplane/tests/dtls.rs::a_client_with_many_handshakes_that_go_no_further_crowds_out_its_own_alone",
    ),
    (
        Series::AssociationsEnded(AssociationEnd::Failed),
        "dataplane/tests/dtls.rs::a_handshake_without_a_common_suite_ends_its_association",
    ),
    (
        Series::AssociationsEnded(AssociationEnd::Broken),
        "e2e/tests/dtls.rs::a_second_handshake_within_an_association_is_refused",
    ),
];

/// Reasons without a test. The list only gets shorter.
pub(crate) const NOT_YET: &[Series] = &[
    // A ring datagram with a wrong checksum.
    Series::Drop(DropReason::Checksum),
];
