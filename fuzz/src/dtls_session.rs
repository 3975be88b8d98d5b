//! An established DTLS session between a client and a server with known keys. The network reorders,
//! repeats, alters and forges datagrams: no content arrives twice, and none that was not sent.

use std::collections::BTreeSet;

use state_format::{Reader, Value as _, Writer};
use turn_session::dtls::{DtlsEngine, DtlsState, Exchange, resume};

/// Cipher suites, by their names at IANA.
const SUITES: [&str; 3] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Both ends of a session, the server's first.
fn ends(cipher: u8) -> [Box<dyn DtlsEngine>; 2] {
    let suite = SUITES[usize::from(cipher) % SUITES.len()];
    let states = DtlsState::of_secrets(suite, &[1; 48], [&[2; 32], &[3; 32]]);
    states.expect("a suite that is served").map(|state| resume(state).expect("a session"))
}

/// The server's end, resumed in another process.
fn moved(server: &dyn DtlsEngine, skipped: u64) -> Option<Box<dyn DtlsEngine>> {
    let mut state = server.state()?;
    state.skip(skipped);
    let mut out = Writer::new();
    state.write(&mut out);
    resume(Reader::new(&out.into_bytes()).last().expect("its own form"))
}

/// Takes a datagram, and returns the contents of the records, up to the end of the session.
fn take(end: &mut dyn DtlsEngine, datagram: &[u8], exchange: &mut Exchange) -> Vec<Vec<u8>> {
    let mut contents = Vec::new();
    let mut room = vec![0; 1 << 15];
    if end.take(datagram, exchange).is_ok() {
        while let Ok(Some(len)) = end.read(&mut room, exchange) {
            contents.push(room[..len].to_vec());
        }
    }
    exchange.clear();
    contents
}

/// Runs steps of the client, the network and the server: three bytes each.
pub fn session(bytes: &[u8]) {
    let Some((&cipher, mut steps)) = bytes.split_first() else { return };
    let [mut server, mut client] = ends(cipher);
    let mut exchange = Exchange::default();
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut arrived = BTreeSet::new();
    while let [step, a, b, rest @ ..] = steps {
        steps = rest;
        let one = || sent.get(usize::from(*a) % sent.len().max(1)).cloned().unwrap_or_default();
        let datagram = match step % 6 {
            0 => {
                let content = [&(sent.len() as u32).to_be_bytes()[..], &vec![*b; (*a).into()]];
                client.write(&content.concat(), &mut exchange).expect("it goes on");
                sent.extend(exchange.datagrams().map(<[u8]>::to_vec));
                exchange.clear();
                continue;
            }
            1 => one(),
            2 => {
                let mut altered = one();
                let at = usize::from(*b) % altered.len().max(1);
                altered.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (b % 8));
                altered
            }
            3 => [one(), sent.get(usize::from(*b)).cloned().unwrap_or_default()].concat(),
            4 => {
                if let Some(next) = moved(&*server, u64::from(*a) << (b % 40)) {
                    server = next;
                }
                continue;
            }
            _ => {
                let (raw, behind) = rest.split_at(usize::from(*a).min(rest.len()));
                steps = behind;
                raw.to_vec()
            }
        };
        for content in take(&mut *server, &datagram, &mut exchange) {
            let number = content.first_chunk().map(|number| u32::from_be_bytes(*number));
            let number = number.expect("what the client sent");
            assert!(arrived.insert(number), "{number} has come twice");
            assert!((number as usize) < sent.len(), "{number} was never sent");
        }
    }
}

/// An arbitrary state: refused, or resumed as a session.
pub fn state(bytes: &[u8]) {
    let Ok(state) = Reader::new(bytes).last::<DtlsState>() else { return };
    let Some(mut end) = resume(state) else { return };
    let mut exchange = Exchange::default();
    let _sent = end.write(b"data", &mut exchange);
    take(&mut *end, bytes, &mut exchange);
    end.close(&mut exchange);
    assert!(end.state().is_none());
}
