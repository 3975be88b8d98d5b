//! Detection of the public addresses of a host with network address translation (`relay.external =
//! "auto"`). The operator names STUN servers, or the cloud whose metadata service is queried.
//!
//! Addresses are never guessed. If no server responds for an address, the last response remains in
//! effect. Without any response the server does not relay from the address.

mod metadata;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linux_net::random_bytes;
use settings::value::StunServer;
use settings::{CloudMetadata, RelayPair, Settings};
use stun_wire::{AttributeType, Class, Message, MessageBuilder, Method, TransactionId, value};
use tokio::net::{UdpSocket, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::Result;
use crate::own_addresses::host_addresses;
use crate::warnings;

/// Maximum waits for a response after each transmission of a request.
const WAITS: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];

/// Maximum time to resolve a server's name.
const RESOLVED_WITHIN: Duration = Duration::from_secs(5);

/// Maximum wait of a start for the first responses. An early response spares clients a refusal.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// Pause between two attempts of a start.
const PAUSE: Duration = Duration::from_secs(1);

/// Interval at which a running server repeats the queries.
pub(crate) const ASKED_EVERY: Duration = Duration::from_secs(60);

/// Interval of the queries while no public address is known.
pub(crate) const ASKED_SOON: Duration = Duration::from_secs(3);

/// Maximum length of a response in bytes. A Binding response has a few addresses.
const RESPONSE_MAX: usize = 576;

/// Queries the public address of each local relay address at the start. The wait is bounded, and
/// the result is empty without a response. The server then serves requests that need no relay
/// address, and repeats its queries.
///
/// # Errors
/// The addresses of this host cannot be listed.
pub(crate) async fn find(settings: &Settings) -> Result<Vec<RelayPair>> {
    let deadline = Instant::now() + FOUND_WITHIN;
    let mut told = false;
    loop {
        let Answers { found, failed } = ask(settings).await?;
        if !found.is_empty() {
            // The other address family may have no path to the servers.
            for (local, why) in failed {
                tracing::warn!(
                    "no public address is known for {local} ({why}): it is not relayed from until one is found"
                );
            }
            return Ok(found);
        }
        let why = failed.into_iter().map(|(local, why)| format!("{local}: {why}"));
        let why = why.collect::<Vec<_>>().join("; ");
        if Instant::now() >= deadline {
            tracing::warn!(
                "relay.external is \"auto\", and no public address is found ({why}): the server relays nothing until one is. See \
                 that UDP to the servers of relay.external_stun passes, name others or the cloud (relay.external_metadata), or \
                 write the public address in relay.external"
            );
            return Ok(Vec::new());
        }
        if !told {
            tracing::warn!("waiting for the public address of this host: {why}");
            told = true;
        }
        sleep(PAUSE).await;
    }
}

/// Public addresses found, and the reason for each local address without a response.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) found: Vec<RelayPair>,
    pub(crate) failed: Vec<(IpAddr, String)>,
}

/// Queries the public addresses of all local addresses concurrently, once.
///
/// # Errors
/// The addresses of this host cannot be listed.
pub(crate) async fn ask(settings: &Settings) -> Result<Answers> {
    let mut asked = JoinSet::new();
    for local in settings.addresses_behind_nat(&host_addresses()?) {
        let servers = settings.relay.external_stun.clone();
        let cloud = settings.relay.external_metadata;
        asked.spawn(async move { (local, ask_cloud_or_servers(local, cloud, &servers).await) });
    }
    let mut answers = Answers::default();
    for (local, answer) in asked.join_all().await {
        match answer {
            Ok(public) => answers.found.push(RelayPair { local, public }),
            // A local address that is public needs no response.
            Err(_) if !warnings::is_private(local) => {
                answers.found.push(RelayPair { local, public: local });
            }
            Err(why) => answers.failed.push((local, why)),
        }
    }
    answers.found.sort_by_key(|pair| pair.local);
    Ok(answers)
}

/// Queries the cloud's metadata service, which is authoritative. If it fails, queries the STUN
/// servers.
async fn ask_cloud_or_servers(
    local: IpAddr,
    cloud: CloudMetadata,
    servers: &[StunServer],
) -> Result<IpAddr, String> {
    if cloud == CloudMetadata::Off {
        return ask_all(local, servers).await;
    }
    match metadata::ask(local, cloud).await {
        Err(why) if !servers.is_empty() => {
            ask_all(local, servers).await.map_err(|error| format!("{why}; {error}"))
        }
        answer => answer,
    }
}

/// Queries all servers concurrently. Returns the response of the first server in configured order.
async fn ask_all(local: IpAddr, servers: &[StunServer]) -> Result<IpAddr, String> {
    let mut asked = JoinSet::new();
    for (index, server) in servers.iter().cloned().enumerate() {
        asked.spawn(async move { (index, ask_one(local, &server).await) });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(index, _)| *index);
    let mut first: Option<(usize, IpAddr)> = None;
    let mut why = "no server of relay.external_stun has an address of its family".to_owned();
    for (index, answer) in answers {
        match (answer, first) {
            (Ok(ip), None) => first = Some((index, ip)),
            (Ok(ip), Some((other, known))) if ip != known => tracing::warn!(
                "{} and {} disagree about the public address of {local}: {known} and {ip}; the first counts",
                servers[other],
                servers[index]
            ),
            (Ok(_), Some(_)) => {}
            (Err(error), _) => why = format!("{}: {error}", servers[index]),
        }
    }
    first.map(|(_, ip)| ip).ok_or(why)
}

async fn ask_one(local: IpAddr, server: &StunServer) -> io::Result<IpAddr> {
    let found = timeout(RESOLVED_WITHIN, lookup_host((server.host(), server.port())));
    let found =
        found.await.map_err(|_| io::Error::other("its name does not resolve in time"))??;
    let server = found.into_iter().find(|at| at.is_ipv4() == local.is_ipv4());
    let server = server.ok_or_else(|| io::Error::other("it has no address of this family"))?;
    let socket = UdpSocket::bind(SocketAddr::new(local, 0)).await?;
    // Accept datagrams only from this server.
    socket.connect(server).await?;
    let (id, request) = request()?;
    let mut response = [0; RESPONSE_MAX];
    for wait in WAITS {
        socket.send(&request).await?;
        let answered = timeout(wait, async {
            loop {
                let len = socket.recv(&mut response).await?;
                if let Some(ip) = mapped(&response[..len], id) {
                    return io::Result::Ok(ip);
                }
            }
        });
        if let Ok(answered) = answered.await {
            return answered;
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"))
}

fn request() -> io::Result<(TransactionId, Vec<u8>)> {
    let seed: [u8; 32] = random_bytes();
    let mut id = TransactionId::default();
    id.0.copy_from_slice(&seed[..12]);
    let mut bytes = vec![0; 64];
    let builder = MessageBuilder::new(&mut bytes, Class::Request, Method::BINDING, id);
    let len = builder.finish().ok_or_else(|| io::Error::other("a request is too long"))?;
    bytes.truncate(len);
    Ok((id, bytes))
}

/// Returns the mapped address of a Binding response to request `id`. Returns `None` for other
/// messages, and for addresses that peers cannot send to.
fn mapped(bytes: &[u8], id: TransactionId) -> Option<IpAddr> {
    let message = Message::parse(bytes).ok().filter(|message| message.transaction_id() == id)?;
    if message.class() != Class::Success {
        return None;
    }
    let mapped = value::xor_address(message.first(AttributeType::XOR_MAPPED_ADDRESS)?, id).ok()?;
    let ip = mapped.ip();
    (!ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()).then_some(ip)
}

/// Returns the public addresses of a running server: the new responses, and the last known address
/// where a query failed.
pub(crate) fn kept(known: &[RelayPair], answers: &Answers) -> Vec<RelayPair> {
    let mut all = answers.found.clone();
    let without = answers
        .failed
        .iter()
        .filter_map(|(local, _)| known.iter().find(|pair| pair.local == *local));
    all.extend(without);
    all.sort_by_key(|pair| pair.local);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(local: &str, public: &str) -> RelayPair {
        RelayPair { local: local.parse().unwrap(), public: public.parse().unwrap() }
    }

    #[test]
    fn an_address_without_an_answer_keeps_its_last_one() {
        let known = [pair("10.0.0.5", "203.0.113.7"), pair("10.0.0.6", "203.0.113.8")];
        let answers = Answers {
            found: vec![pair("10.0.0.5", "203.0.113.9")],
            failed: vec![
                ("10.0.0.6".parse().unwrap(), String::new()),
                ("10.0.0.7".parse().unwrap(), String::new()),
            ],
        };
        let expected = [pair("10.0.0.5", "203.0.113.9"), pair("10.0.0.6", "203.0.113.8")];
        assert_eq!(kept(&known, &answers), expected);
    }

    #[test]
    fn only_the_response_to_the_request_counts() {
        let (id, _) = request().unwrap();
        let mut bytes = vec![0; 128];
        let mut builder = MessageBuilder::new(&mut bytes, Class::Success, Method::BINDING, id);
        builder.xor_address(AttributeType::XOR_MAPPED_ADDRESS, "203.0.113.7:4000".parse().unwrap());
        let len = builder.finish().unwrap();
        assert_eq!(mapped(&bytes[..len], id), Some("203.0.113.7".parse().unwrap()));
        assert_eq!(mapped(&bytes[..len], TransactionId([1; 12])), None);
        assert_eq!(mapped(&bytes[..len - 1], id), None);
    }
}
