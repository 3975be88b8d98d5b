//! A phase: a new server, perhaps an attack, and honest clients.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use e2e::Host;

use crate::attackers::Attacker;
use crate::operations::{Honest, Operation, UNKNOWN_USERS};
use crate::scene::Scene;
use crate::stun::Noise;
use crate::weapons::{self, Attack};

/// Time for an attack to fill tables before honest clients start.
const FILLING: Duration = Duration::from_secs(8);

/// Pause between two operations.
const PAUSE: Duration = Duration::from_millis(20);

/// Measurements of one or several phases.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    /// Times of the operations that succeeded, by operation.
    pub(crate) times: [Vec<Duration>; Operation::ALL.len()],
    /// Number of failures by operation and error.
    pub(crate) failures: BTreeMap<(usize, String), usize>,
    /// Refusals counted by the server, by metric.
    pub(crate) refusals: BTreeMap<String, u64>,
    /// Share of its processor that the server used, of each phase.
    pub(crate) busy: Vec<f64>,
}

impl Measurements {
    /// Adds the refusals since `before`.
    fn note_refusals(&mut self, before: &BTreeMap<String, u64>, scene: &Scene) {
        let mut after = refusals(&scene.metrics());
        let log = scene.server.process.output();
        // A line a minute for each listener of HTTP.
        let lines = log.matches("as there are as many connections as may be").count();
        after.insert("log lines about closed connections of HTTP".to_owned(), lines as u64);
        for (metric, count) in after {
            let count = count.saturating_sub(before.get(&metric).copied().unwrap_or(0));
            if count > 0 {
                *self.refusals.entry(metric).or_default() += count;
            }
        }
    }

    /// Number of refusals for want of a slot, a share or a budget.
    pub(crate) fn refused(&self) -> u64 {
        const OTHER: [&str; 6] = [
            "kernel_channels",
            "no_credentials",
            "invalid_nonce",
            "wrong_password",
            "unknown_user",
            "log lines",
        ];
        let is_for_want = |metric: &str| !OTHER.iter().any(|other| metric.contains(other));
        let refusals = self.refusals.iter().filter(|(metric, _)| is_for_want(metric));
        refusals.map(|(_, count)| count).sum()
    }

    fn fail(&mut self, operation: usize, error: &io::Error) {
        *self.failures.entry((operation, error.to_string())).or_default() += 1;
    }
}

/// A phase to be run.
pub(crate) struct Phase {
    /// `None`: quiet.
    pub(crate) attacker: Option<Attacker>,
    /// Honest operations of each kind.
    pub(crate) operations: usize,
    pub(crate) seed: u64,
}

impl Phase {
    /// Runs the phase on a new server.
    pub(crate) fn run(&self, scene: &mut Scene, into: &mut Measurements) {
        scene.restart();
        let peer = scene.lab.socket(Host::Peer, (scene.lab.v4.peer, 0));
        peer.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        let listener = scene.lab.listener(Host::Peer, (scene.lab.v4.peer, 0));
        let before = refusals(&scene.metrics());
        let stop = Arc::new(AtomicBool::new(false));
        let attack = self.attacker.map(|attacker| self.attack(scene, attacker, &stop));
        if self.attacker.is_some() {
            std::thread::sleep(FILLING);
        }
        let process = scene.server.process.pid();
        let cpu = || lab_net::process_cpu_time(process).unwrap_or_default();
        let (start, cpu_before) = (Instant::now(), cpu());
        self.serve_honest_clients(scene, &peer, &listener, into);
        let used = cpu().saturating_sub(cpu_before);
        into.busy.push(used.as_secs_f64() / start.elapsed().as_secs_f64());
        into.note_refusals(&before, scene);
        stop.store(true, Ordering::Relaxed);
        for thread in attack.into_iter().flatten() {
            thread.join().expect("a weapon");
        }
    }

    fn attack(
        &self,
        scene: &Scene,
        attacker: Attacker,
        stop: &Arc<AtomicBool>,
    ) -> Vec<JoinHandle<()>> {
        let mut seeds = Noise::new(self.seed);
        let start = |weapon: &fn(Attack)| {
            let (weapon, namespace) = (*weapon, scene.namespace(Host::Client));
            let noise = Noise::new(seeds.next());
            let (places, stop) = (scene.places.clone(), Arc::clone(stop));
            let attack = Attack { attacker, places, noise, nonces: HashMap::new(), stop };
            std::thread::spawn(move || {
                lab_net::enter_network_namespace(namespace).expect("the client's host");
                weapon(attack);
            })
        };
        weapons::of(attacker).iter().map(start).collect()
    }

    fn serve_honest_clients(
        &self,
        scene: &Scene,
        peer: &UdpSocket,
        listener: &TcpListener,
        into: &mut Measurements,
    ) {
        let accepting = listener.local_addr().expect("an address").port();
        let namespace = scene.namespace(Host::Client);
        let mut honest = Honest {
            places: &scene.places,
            peer,
            accepting,
            number: 0,
            fresh_user: UNKNOWN_USERS,
            noise: Noise::new(self.seed ^ 1),
        };
        std::thread::scope(|scope| {
            let clients = scope.spawn(move || {
                lab_net::enter_network_namespace(namespace).expect("the client's host");
                precede_attackers();
                // The known user's first look-up is not measured.
                let _ = honest.run(Operation::Allocation);
                for _ in 0..self.operations {
                    for (index, operation) in Operation::ALL.into_iter().enumerate() {
                        honest.number += 1;
                        match honest.run(operation) {
                            Ok(time) => into.times[index].push(time),
                            Err(error) => into.fail(index, &error),
                        }
                        std::thread::sleep(PAUSE);
                    }
                    honest.fresh_user += 1;
                }
            });
            clients.join().expect("honest clients");
        });
    }
}

/// Lets the calling thread run before those of attackers, which share its processor.
pub(crate) fn precede_attackers() {
    let link = std::fs::read_link("/proc/thread-self").expect("procfs");
    let thread = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    lab_net::run_first(thread.expect("a thread")).expect("the privilege of root");
}

/// Counters of refusals, by metric with labels.
fn refusals(metrics: &str) -> BTreeMap<String, u64> {
    const OF: [&str; 8] = [
        "turnpike_kernel_channels ",
        "turnpike_refusals_total",
        "turnpike_drops_total",
        "turnpike_connections_refused_total",
        "turnpike_connections_ended_total{reason=\"crowded_out\"",
        "turnpike_dtls_sessions_refused_total",
        "turnpike_dtls_sessions_ended_total{reason=\"crowded_out\"",
        "turnpike_tls_handshakes_paused_total",
    ];
    let mut counts = BTreeMap::new();
    for line in metrics.lines().filter(|line| OF.iter().any(|name| line.starts_with(name))) {
        if let Some((metric, value)) = line.rsplit_once(' ')
            && let Ok(value) = value.parse::<f64>()
        {
            counts.insert(metric.to_owned(), value as u64);
        }
    }
    counts
}
