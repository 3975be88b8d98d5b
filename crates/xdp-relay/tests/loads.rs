//! The programs load on this kernel, and pass unknown packets.

use xdp_relay::device::Hook;
use xdp_relay::{KernelPath, Options, Proof, Verdict};

use crate::support::inside;

fn path() -> KernelPath {
    let options = Options { flows: 1024, look_up_from: 1, proof: Proof::SERVER };
    KernelPath::make(options).unwrap()
}

#[test]
fn the_programs_pass_their_trial() {
    inside(|| {
        let mut path = path();
        for hook in [Hook::Xdp, Hook::Tc] {
            path.self_test(linux_net::Clock::instant(), hook).unwrap();
        }
        assert!(path.passed().iter().all(|(_, count)| *count == 0), "{:?}", path.passed());
        assert_eq!(path.partial_checksums(), 0);
    });
}

#[test]
fn unknown_packets_pass_unchanged() {
    inside(|| {
        let path = path();
        let frame = [0_u8; 64];
        for hook in [Hook::Xdp, Hook::Tc] {
            let ran = path.run(hook, &frame, 1).unwrap();
            assert_eq!((ran.verdict, ran.frame.as_slice()), (Verdict::Pass, &frame[..]));
        }
        assert!(path.passed().iter().all(|(_, count)| *count == 0));
    });
}
