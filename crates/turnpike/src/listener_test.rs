//! Test requests to the server's own listeners, as clients send them, for `/healthz`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use admin::types::ListenerHealth;
use admin::{Answers, ListenerTest};
use control::Handle;
use settings::Settings;
use stun_wire::Method;
use tokio::task::JoinSet;
use turn_types::Prefix;

use crate::asking::{over_tcp, over_udp};
use crate::own_addresses::host_addresses;

/// Listeners of this server, with the settings for test requests.
#[derive(Debug)]
pub(crate) struct OwnListeners {
    addresses: Vec<SocketAddr>,
    /// Listeners that accept only TLS.
    tls: Vec<SocketAddr>,
    udp: bool,
    tcp: bool,
    /// Sources whose connections start with a PROXY header.
    proxies: Vec<Prefix>,
    method: Method,
    handle: Handle,
}

impl OwnListeners {
    pub(crate) fn new(settings: &Settings, handle: Handle) -> Self {
        let info = handle.info();
        let proxies = settings.tcp.proxy_protocol.iter().map(|prefix| prefix.0).collect();
        let (udp, tcp) = (settings.udp.enabled, settings.tcp.enabled);
        let tls = if settings.tls.enabled { info.tls_listeners.clone() } else { Vec::new() };
        // An Allocate request without credentials gets an error, which is also a response.
        let method = if settings.binding { Method::BINDING } else { Method::ALLOCATE };
        Self { addresses: info.listeners.clone(), tls, udp, tcp, proxies, method, handle }
    }
}

impl ListenerTest for OwnListeners {
    fn ask(&self) -> Answers<'_> {
        let method = self.method;
        // Listeners at addresses that the host lacks are not tested, because a restart would not
        // help.
        let host = host_addresses().unwrap_or_default();
        let is_there = move |(_, at): &(usize, &SocketAddr)| {
            at.ip().is_unspecified() || host.usable().is_empty() || host.has(at.ip())
        };
        Box::pin(async move {
            let mut asked = JoinSet::new();
            for (index, &address) in self.addresses.iter().enumerate().filter(&is_there) {
                if self.udp {
                    asked.spawn(async move {
                        (index, ask("udp", address, over_udp(here(address), method)).await)
                    });
                }
                if self.tcp {
                    let proxies = self.proxies.clone();
                    asked.spawn(async move {
                        (
                            index,
                            ask("tcp", address, over_tcp(here(address), &proxies, false, method))
                                .await,
                        )
                    });
                }
            }
            // Listeners for TLS are not tested without certificates, because a restart would not
            // help either.
            let can_serve_tls = !self.handle.info().certificates.is_empty();
            let tls = self.tls.iter().filter(|_| can_serve_tls);
            for (index, &address) in tls.enumerate().filter(&is_there) {
                let (index, proxies) = (self.addresses.len() + index, self.proxies.clone());
                asked.spawn(async move {
                    (
                        index,
                        ask("tls", address, over_tcp(here(address), &proxies, true, method)).await,
                    )
                });
            }
            let mut answers = asked.join_all().await;
            answers.sort_by_key(|(index, answer)| (*index, answer.transport.clone()));
            answers.into_iter().map(|(_, answer)| answer).collect()
        })
    }
}

/// Returns the address at which this host reaches a listener.
fn here(mut listener: SocketAddr) -> SocketAddr {
    if listener.ip().is_unspecified() {
        listener.set_ip(match listener.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    listener
}

async fn ask(
    transport: &str,
    address: SocketAddr,
    question: impl Future<Output = io::Result<()>>,
) -> ListenerHealth {
    let begin = Instant::now();
    let error = question.await.err().map(|error| error.to_string());
    let microseconds = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    ListenerHealth {
        address: address.to_string(),
        transport: transport.to_owned(),
        microseconds,
        error,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    #[test]
    fn a_wildcard_is_asked_at_loopback() {
        let at = |text: &str| here(text.parse().unwrap()).to_string();
        assert_eq!(at("0.0.0.0:3478"), "127.0.0.1:3478");
        assert_eq!(at("[::]:3478"), "[::1]:3478");
        assert_eq!(at("203.0.113.7:3478"), "203.0.113.7:3478");
    }

    #[tokio::test]
    async fn a_port_without_a_server_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        let answer = ask("udp", address, over_udp(address, Method::BINDING)).await;
        assert!(answer.error.is_some(), "{answer:?}");
        let answer = ask("tcp", address, over_tcp(address, &[], false, Method::BINDING)).await;
        assert!(answer.error.is_some(), "{answer:?}");
    }
}
