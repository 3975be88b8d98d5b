//! Payloads that show whether they arrived unchanged.

use netsim::Rng;

/// Returns a payload that contains a check of its completeness.
pub fn whole_payload(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(10) {
        0 => return Vec::new(),
        1..=8 => rng.index(200),
        _ => rng.index(1_200),
    };
    let mut payload = rng.bytes(len);
    payload.extend_from_slice(&fnv(&payload).to_be_bytes());
    payload
}

pub fn is_whole(payload: &[u8]) -> bool {
    match payload.split_last_chunk::<8>() {
        Some((data, sum)) => fnv(data).to_be_bytes() == *sum,
        None => payload.is_empty(),
    }
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}
