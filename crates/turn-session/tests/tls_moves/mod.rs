//! TLS connections that continue in another process, unnoticed by the client.

mod failures;
mod openssl;
mod support;

use std::io::Write as _;

use proptest::collection::vec;
use proptest::prelude::*;
use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
use turn_session::Tls;

use self::support::{Scene, few_suites, pattern, resume};

#[test]
fn every_suite_goes_on_in_one_process_after_another() {
    for suite in ALL_CIPHER_SUITES {
        let mut scene = Scene::new(*suite);
        scene.assert_goes_on(usize::MAX);
        for piece in [usize::MAX, 1000, 1] {
            scene.moves();
            scene.assert_goes_on(piece);
        }
    }
}

#[test]
fn nothing_is_lost_that_was_on_its_way() {
    for suite in ALL_CIPHER_SUITES {
        let mut scene = Scene::new(*suite);
        // The first move is from rustls, the second from restored keys.
        for _ in 0..2 {
            let (mut first, second) = (scene.says(b"first"), scene.says(b"second"));
            assert_eq!(scene.tls().write([b"to the client", b""]), 13);
            // The first record is not read, and the second has partly arrived.
            first.extend_from_slice(&second[..9]);
            assert_eq!(scene.tls().take(&first, &mut [0; 2]).unwrap(), 2);
            scene.moves();
            let mut room = [0; 100];
            assert_eq!(scene.tls().read(&mut room), 3);
            assert_eq!(&room[..3], b"rst");
            assert_eq!(scene.take(&second[9..]).unwrap(), b"second");
            assert_eq!(scene.deliver_to_client(), b"to the client");
        }
        scene.assert_goes_on(usize::MAX);
    }
}

/// Moves after each byte of a record, through several processes.
#[test]
fn it_moves_within_a_record() {
    for suite in few_suites() {
        let mut scene = Scene::new(suite);
        let len = scene.says(b"a record").len();
        // The record of the length check is not delivered: start again.
        scene = Scene::new(suite);
        for at in 0..=len {
            let record = scene.says(b"a record");
            let mut heard = scene.take(&record[..at]).unwrap();
            scene.moves();
            heard.extend(scene.take(&record[at..]).unwrap());
            assert_eq!(heard, b"a record", "{at}");
        }
    }
}

/// Data of the client follows its Finished, completely or partly.
#[test]
fn it_moves_right_behind_the_handshake() {
    for suite in few_suites() {
        let (mut len, mut moved) = (0, 0);
        for at in 0.. {
            let mut scene = Scene::before_handshake(suite);
            scene.deliver_to_server(usize::MAX);
            scene.deliver_to_client();
            if scene.client.is_handshaking() {
                // TLS 1.2: the server's Finished is the last.
                scene.deliver_to_server(usize::MAX);
                scene.deliver_to_client();
            }
            let last = scene.says(b"glued");
            len = last.len();
            if at > len {
                break;
            }
            let mut heard = scene.take(&last[..at]).unwrap();
            if scene.tls().is_agreed() {
                // The tickets of TLS 1.3 are not written yet.
                scene.moves();
                moved += 1;
            } else {
                scene.assert_stays();
            }
            heard.extend(scene.take(&last[at..]).unwrap());
            assert_eq!(heard, b"glued", "{at} of {len}");
            scene.deliver_to_client();
            scene.assert_goes_on(usize::MAX);
        }
        assert!(moved > 20 && moved <= len + 1, "{moved} of {len}");
    }
}

#[test]
fn what_the_socket_has_taken_in_part_is_completed() {
    for suite in few_suites() {
        let mut scene = Scene::new(suite);
        let said = pattern(40_000);
        let mut wire = Vec::new();
        assert_eq!(scene.tls().write([&said, &[]]), said.len());
        while scene.tls().wants_write() {
            let mut some = [0; 3000];
            let len = scene.tls().write_to(&mut &mut some[..]).unwrap();
            wire.extend_from_slice(&some[..len]);
            scene.moves();
        }
        let heard = support::hear(&mut scene.client, &wire).unwrap();
        assert!(heard == said);
        scene.assert_goes_on(usize::MAX);
    }
}

/// The old process continues if the new process fails without having sent anything.
#[test]
fn the_old_process_takes_it_back() {
    let mut scene = Scene::any();
    scene.assert_goes_on(usize::MAX);
    let state = scene.leave();
    drop(resume(&state));
    scene.tls = Some(resume(&state));
    scene.assert_goes_on(usize::MAX);
}

#[test]
fn keys_that_the_client_changed_before_go_with_it() {
    let mut scene = Scene::any();
    for _ in 0..2 {
        scene.client.refresh_traffic_keys().unwrap();
        scene.client.writer().write_all(b"with new keys").unwrap();
        assert_eq!(scene.deliver_to_server(usize::MAX), b"with new keys");
    }
    // The server's answer to the update is waiting.
    scene.moves();
    scene.assert_goes_on(usize::MAX);
    scene.moves();
    scene.assert_goes_on(1000);
}

#[test]
fn the_queue_is_bounded() {
    let mut scene = Scene::any();
    scene.moves();
    let meant = pattern(300_000);
    let first = scene.tls().write([&meant, &[]]);
    assert!(first > 0 && first < 100_000, "{first}");
    assert_eq!(scene.tls().write([&meant[first..], &[]]), 0);
    let (mut rest, mut heard) = (&meant[first..], scene.deliver_to_client());
    while !rest.is_empty() {
        rest = &rest[scene.tls().write([rest, &[]])..];
        heard.extend(scene.deliver_to_client());
    }
    assert!(heard == meant);
}

#[test]
fn both_sides_end_after_a_move() {
    for suite in few_suites() {
        let mut scene = Scene::new(suite);
        scene.moves();
        scene.client.writer().write_all(b"the last of it").unwrap();
        scene.client.send_close_notify();
        assert_eq!(scene.deliver_to_server(usize::MAX), b"the last of it");
        assert!(scene.tls().has_ended());
        assert_eq!(scene.tls().write([b"and more", b""]), 8);
        scene.tls().end();
        scene.tls().end();
        assert_eq!(scene.tls().write([b"too late", b""]), 0);
        assert_eq!(scene.deliver_to_client(), b"and more");
        assert!(scene.client.process_new_packets().unwrap().peer_has_closed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All data arrives, for any segmentation of the stream and any time of a move.
    #[test]
    fn all_arrives_in_order(
        pieces in vec((1_usize..20_000, any::<bool>()), 1..20),
        suite in 0..ALL_CIPHER_SUITES.len(),
    ) {
        let mut scene = Scene::new(ALL_CIPHER_SUITES[suite]);
        let said = pattern(60_000);
        scene.client.set_buffer_limit(None);
        let bytes = scene.says(&said);
        let (mut rest, mut heard) = (&bytes[..], Vec::new());
        for (len, moves) in pieces.iter().cycle() {
            let (piece, more) = rest.split_at((*len).min(rest.len()));
            heard.extend(scene.take(piece).unwrap());
            rest = more;
            if *moves {
                scene.moves();
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(heard == said);
        scene.assert_goes_on(usize::MAX);
    }

    /// Calls in the order of a server's connection, with buffers of any size.
    #[test]
    fn no_room_is_too_small(
        rooms in vec((1_usize..70_000, 0..8_u8), 1..20),
        suite in 0..ALL_CIPHER_SUITES.len(),
    ) {
        let mut scene = Scene::new(ALL_CIPHER_SUITES[suite]);
        let said = pattern(150_000);
        scene.client.set_buffer_limit(None);
        let bytes = scene.says(&said);
        let (mut rest, mut heard) = (&bytes[..], Vec::new());
        for (room, moves) in rooms.iter().cycle() {
            let mut room = vec![0; *room];
            if *moves == 0 {
                scene.moves();
            }
            let mut len = scene.tls().read(&mut room);
            if len == 0 {
                let (piece, more) = rest.split_at(rest.len().min(Tls::most(room.len())));
                if piece.is_empty() {
                    break;
                }
                len = scene.tls().take(piece, &mut room).unwrap();
                rest = more;
            }
            heard.extend_from_slice(&room[..len]);
        }
        prop_assert!(heard == said);
    }
}
