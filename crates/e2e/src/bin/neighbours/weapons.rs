//! Hostile traffic: each weapon is a thread with a rate.

pub(crate) mod connections;
pub(crate) mod datagrams;
pub(crate) mod hello;
pub(crate) mod users;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::attackers::Attacker;
use crate::scene::Places;
use crate::stun::Noise;

/// An attacker at work.
#[derive(Clone)]
pub(crate) struct Attack {
    pub(crate) attacker: Attacker,
    pub(crate) places: Places,
    pub(crate) noise: Noise,
    /// Last nonce of each address.
    pub(crate) nonces: HashMap<IpAddr, String>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Calls per second.
struct Pace {
    next: Instant,
    interval: Duration,
}

impl Attack {
    /// Repeats an action at a rate per second until the attack stops.
    fn repeat(&mut self, rate: u32, mut action: impl FnMut(&mut Self)) {
        let mut pace = Pace { next: Instant::now(), interval: Duration::from_secs(1) / rate };
        while !self.stop.load(Ordering::Relaxed) {
            action(self);
            pace.wait();
        }
    }
}

impl Pace {
    fn wait(&mut self) {
        self.next += self.interval;
        let now = Instant::now();
        // A late thread makes up for a tenth of a second at most.
        self.next = self.next.max(now.checked_sub(Duration::from_millis(100)).unwrap_or(now));
        std::thread::sleep(self.next.saturating_duration_since(now));
    }
}

/// Weapons of an attacker, which run until it stops.
pub(crate) fn of(attacker: Attacker) -> &'static [fn(Attack)] {
    match attacker {
        // Requests without credentials would use up the budgets of its address.
        Attacker::Account => {
            &[users::allocations, users::allocations, users::flows, users::connects]
        }
        Attacker::SpreadAccount | Attacker::Realm => &[
            users::allocations,
            users::allocations,
            users::flows,
            users::connects,
            datagrams::requests,
        ],
        Attacker::Address
        | Attacker::Site64
        | Attacker::Site48
        | Attacker::Provider
        | Attacker::Botnet => &[
            datagrams::dtls_hellos,
            datagrams::requests,
            connections::tls_hellos,
            connections::http,
        ],
    }
}
