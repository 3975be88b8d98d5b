//! Randomness of the operating system.

/// Returns `N` random bytes from the operating system, for keys, seeds and tokens.
///
/// # Panics
/// The kernel provides no random bytes, for example in a sandbox. The process cannot continue
/// safely in that case.
#[must_use]
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if let Err(error) = getrandom::fill(&mut bytes) {
        panic!("the operating system gives no random bytes: {error}");
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let seen: std::collections::BTreeSet<[u8; 16]> =
            (0..1000).map(|_| random_bytes()).collect();
        assert_eq!(seen.len(), 1000);
    }
}
