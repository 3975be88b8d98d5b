//! What clients and peer can do without a server: the same packets, forwarded by the kernel from
//! link to link without being looked at. A server that comes near to it is not measured: they are.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};

use super::host::Host;
use super::network::Network;
use crate::frames::{Forwarder, Hop, Mac};

/// Packets of runs pass by the server, for as long as this is there. What opens sessions, and what
/// clients and peer tell each other, still goes through it.
pub(super) struct Forwarding {
    /// Its thread lives in the server's network.
    thread: JoinHandle<()>,
    stop: SyncSender<()>,
}

impl Forwarding {
    /// Begins to forward.
    ///
    /// # Errors
    /// As [`Forwarder::attach`].
    pub(super) fn begin(network: &Network) -> Result<Self> {
        let namespace = network.namespace(Host::Server)?;
        let ends = [Host::Client, Host::Peer].map(|far| network.interface(Host::Server, far));
        let (stop, stopped) = sync_channel::<()>(1);
        let (tell, told) = sync_channel(1);
        let thread = thread::spawn(move || {
            let attached = lab_net::enter_network_namespace(&namespace)
                .context("entering the server's network")
                .and_then(|()| attach(&ends));
            match attached {
                Ok(forwarder) => {
                    // Whoever began hears it, and says when it is over or is gone.
                    let _ = tell.send(Ok(()));
                    let _ = stopped.recv();
                    drop(forwarder);
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        told.recv().map_err(|_| anyhow!("the forwarder's thread ended"))??;
        Ok(Self { thread, stop })
    }

    /// Takes the forwarder away.
    pub(super) fn end(self) {
        let Self { thread, stop } = self;
        drop(stop);
        // A panic there was printed, and nothing depends on it.
        let _ = thread.join();
    }
}

fn attach([client, peer]: &[String; 2]) -> Result<Forwarder> {
    let hop = |interface, far| {
        let [own, other] = Network::hardware(Host::Server, far);
        Hop { interface, own_mac: Mac(own), far_mac: Mac(other) }
    };
    Forwarder::attach(hop(client, Host::Client), hop(peer, Host::Peer))
}
