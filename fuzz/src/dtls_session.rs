//! An established DTLS session between a client and a server with known keys. The network reorders,
//! repeats, alters and forges datagrams: no content arrives twice, and none that was not sent.

use std::collections::BTreeSet;

use state_format::{Reader, Value as _, Writer, fields};
use turn_session::dtls::{DtlsEngine, DtlsState, Exchange, resume};

/// The form of [`DtlsState`], with the same tags.
struct State {
    reading: Reading,
    writing: Writing,
    server_name: Option<String>,
    last_flight: Vec<Vec<u8>>,
    answers: u8,
}

struct Reading {
    keys: Keys,
    window: Window,
    forged: u64,
}

struct Writing {
    keys: Keys,
    next: u64,
    blocks: u64,
}

struct Keys {
    cipher: u8,
    key: Vec<u8>,
    fixed: Vec<u8>,
}

struct Window {
    next: u64,
    seen: u128,
}

fields!(State {
    1 => reading,
    2 => writing,
    3 => server_name,
    4 => last_flight,
    5 => answers,
});
fields!(Reading { 1 => keys, 2 => window, 3 => forged });
fields!(Writing { 1 => keys, 2 => next, 3 => blocks });
fields!(Keys { 1 => cipher, 2 => key, 3 => fixed });
fields!(Window { 1 => next, 2 => seen });

/// Lengths of keys and of the fixed parts of nonces, by the number of the cipher.
const CIPHERS: [(u8, usize, usize); 3] = [(1, 16, 4), (2, 32, 4), (3, 32, 12)];

/// An end of the session, with these keys for reading and writing.
fn end(cipher: u8, read: u8, write: u8) -> Box<dyn DtlsEngine> {
    let (cipher, key, fixed) = CIPHERS[usize::from(cipher) % CIPHERS.len()];
    let keys = |byte| Keys { cipher, key: vec![byte; key], fixed: vec![byte; fixed] };
    let state = State {
        reading: Reading { keys: keys(read), window: Window { next: 0, seen: 0 }, forged: 0 },
        writing: Writing { keys: keys(write), next: 1, blocks: 0 },
        server_name: None,
        last_flight: vec![b"the last flight".to_vec()],
        answers: 16,
    };
    resume(read_state(&state)).expect("a state of a session")
}

fn read_state(state: &State) -> DtlsState {
    let mut out = Writer::new();
    state.write(&mut out);
    Reader::new(&out.into_bytes()).last().expect("the form of a state")
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
    let mut client = end(cipher, 2, 1);
    let mut server = end(cipher, 1, 2);
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
