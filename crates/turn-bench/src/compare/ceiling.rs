//! The limit of clients and peer without a server: the kernel forwards their packets from link to
//! link. A server near this ceiling was not the limit.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};

use super::host::Host;
use super::network::Network;
use crate::frames::{Forwarder, Hop, Mac};

/// Packets of runs bypass the server while this value lives. Sessions and control messages still go
/// through it.
pub(super) struct Forwarding {
    /// A thread in the server's network.
    thread: JoinHandle<()>,
    stop: SyncSender<()>,
}

impl Forwarding {
    /// Starts forwarding.
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

    /// Removes the forwarder.
    pub(super) fn end(self) {
        let Self { thread, stop } = self;
        drop(stop);
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
