//! Client session of the probe: requests and responses over a link.

use std::net::SocketAddr;
use std::time::Duration;

use linux_net::{Clock, random_bytes};
use turn_client::{
    AllocateOptions, Allocation, Client, ClientConfig, Event, Failure, Incoming, Retransmission,
};
use turn_types::{Instant, PeerAddr, ServerAddr};

use super::credential::Login;
use super::link::Link;

/// Retransmission of requests: four transmissions within two seconds, and a failure after three and
/// a half. A slower server is treated as broken.
const PATIENCE: Retransmission = Retransmission {
    rto: Duration::from_millis(300),
    sends_max: 4,
    last_wait: 5,
    reliable_timeout: Duration::from_secs(4),
};

/// Failure of a request: the error code, if the server responded, and a description.
pub(crate) type Refused = (Option<u16>, String);

pub(crate) struct Session {
    link: Link,
    client: Client,
}

/// Event or data received so far.
enum Heard {
    Event(Event),
    Data(PeerAddr, Vec<u8>),
}

impl Session {
    pub(crate) fn new(link: Link, server: SocketAddr, login: Option<&Login>) -> Self {
        let (name, password) =
            login.map_or(("", ""), |login| (login.username.as_str(), login.password.as_str()));
        let config = ClientConfig {
            transport: link.transport(),
            retransmission: PATIENCE,
            ..ClientConfig::new(ServerAddr(server), name, password, random_bytes())
        };
        Self { link, client: Client::new(config) }
    }

    /// Sends a Binding request. Returns the mapped address and the response time.
    pub(crate) fn binding(&mut self) -> Result<(SocketAddr, Duration), String> {
        let start = Clock::now().instant;
        self.client.binding(start).map_err(|error| format!("{error:?}"))?;
        let mapped = self
            .wait_for(
                |event| if let Event::Bound { mapped } = event { Some(mapped.0) } else { None },
            )
            .map_err(|(_, why)| why)?;
        Ok((mapped, Clock::now().instant.saturating_since(start)))
    }

    pub(crate) fn allocate(&mut self) -> Result<(Allocation, Duration), Refused> {
        let start = Clock::now().instant;
        self.client
            .allocate(start, AllocateOptions::default())
            .map_err(|error| (None, format!("{error:?}")))?;
        let allocation =
            self.wait_for(
                |event| if let Event::Allocated(made) = event { Some(*made) } else { None },
            )?;
        Ok((allocation, Clock::now().instant.saturating_since(start)))
    }

    pub(crate) fn permit(&mut self, peer: SocketAddr) -> Result<(), Refused> {
        self.client
            .permit(Clock::now().instant, peer.ip())
            .map_err(|error| (None, format!("{error:?}")))?;
        self.wait_for(|event| matches!(event, Event::PermissionReady { .. }).then_some(()))
    }

    /// Sends data to a peer.
    pub(crate) fn say(&mut self, peer: PeerAddr, payload: &[u8]) -> Result<(), String> {
        let mut out = [0; 512];
        let len = self
            .client
            .write_send_indication(&mut out, peer, payload, false)
            .ok_or("a message is too long")?;
        self.link.send(&out[..len]).map_err(|error| error.to_string())
    }

    /// Returns data from a peer, or `None` if no data arrives in time.
    pub(crate) fn hear(&mut self, within: Duration) -> Result<Option<(PeerAddr, Vec<u8>)>, String> {
        let end = Clock::now().instant + within;
        loop {
            match self.turn(end)? {
                Some(Heard::Data(peer, payload)) => return Ok(Some((peer, payload))),
                Some(Heard::Event(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Releases the allocation without waiting for the response.
    pub(crate) fn release(&mut self) {
        if self.client.release(Clock::now().instant).is_ok() {
            // After a failure, the allocation expires later.
            let _ = self.transmit();
        }
    }

    fn wait_for<T>(&mut self, wanted: impl Fn(&Event) -> Option<T>) -> Result<T, Refused> {
        loop {
            let heard = self.turn(Instant::FAR_FUTURE).map_err(|why| (None, why))?;
            let Some(Heard::Event(event)) = heard else { continue };
            if let Some(found) = wanted(&event) {
                return Ok(found);
            }
            if let Event::Refused { code, reason, .. } = &event {
                return Err((Some(*code), format!("refused: {code} {reason}")));
            }
            if let Event::Failed { failure, .. } = &event {
                return Err((None, words(*failure).to_owned()));
            }
            if let Event::Redirected { server, .. } = &event {
                return Err((Some(300), format!("sent to another server: {server}")));
            }
        }
    }

    /// Waits for the next event or data, until `end` at the latest.
    fn turn(&mut self, end: Instant) -> Result<Option<Heard>, String> {
        loop {
            self.transmit()?;
            if let Some(event) = self.client.poll_event() {
                return Ok(Some(Heard::Event(event)));
            }
            let now = Clock::now().instant;
            if now >= end {
                return Ok(None);
            }
            let due = self.client.poll_timeout().unwrap_or(Instant::FAR_FUTURE).min(end);
            let within = due.saturating_since(now).min(Duration::from_secs(1));
            let received = self.link.receive(within).map_err(|error| error.to_string())?;
            let now = Clock::now().instant;
            match received.as_deref().map(|bytes| self.client.handle_datagram(now, bytes)) {
                Some(Incoming::Data { peer, payload, .. }) => {
                    return Ok(Some(Heard::Data(peer, payload.to_vec())));
                }
                Some(Incoming::Icmp { .. } | Incoming::Answer | Incoming::Ignored(_)) | None => {
                    self.client.handle_timeout(now);
                }
            }
        }
    }

    fn transmit(&mut self) -> Result<(), String> {
        while let Some(request) = self.client.poll_transmit() {
            self.link.send(request).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

const fn words(failure: Failure) -> &'static str {
    match failure {
        Failure::TimedOut => "no answer",
        Failure::IntegrityViolated => {
            "the integrity of the answers does not verify: the password is wrong, or the server cannot read its user \
             database (`turnpike why` there tells)"
        }
        Failure::BidDown => "the path downgrades the password algorithm",
        Failure::NoAlgorithm => "the server offers no password algorithm that is known here",
        Failure::Credentials => "the server asks for credentials, or these cannot be used",
        Failure::TooManyChallenges => "the server asks for credentials again and again",
        Failure::Redirect => "the server sends clients in circles",
        Failure::Malformed => "the answer is malformed",
    }
}
