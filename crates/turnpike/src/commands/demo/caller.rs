//! Client of the demo: authenticates, allocates and binds a channel.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::anyhow;
use linux_net::{Clock, random_bytes};
use stun_wire::ChannelNumber;
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};
use turn_client::{
    AllocateOptions, Client, ClientConfig, Event, Failure as ClientFailure, Families,
};
use turn_types::{Instant, IpFamily, PeerAddr, ServerAddr};

use crate::commands::demo::endpoint;
use crate::failure::{Failure, Result};

/// Maximum time of the setup: a few round trips, with retransmissions of a packet or two.
const SET_UP_DEADLINE: Duration = Duration::from_secs(10);

/// Credentials of a client.
#[derive(Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: &'a str,
}

/// Client with an allocation.
pub(crate) struct Caller {
    /// Socket that is connected to the server.
    pub(crate) socket: UdpSocket,
    pub(crate) client: Client,
    /// Relayed address of the allocation.
    pub(crate) relayed: SocketAddr,
}

impl Caller {
    /// Allocates an IPv4 address, or an IPv6 address if the server has no IPv4 address.
    pub(crate) async fn log_in(server: SocketAddr, login: Login<'_>) -> Result<Self> {
        let mut families = [Families::Unsaid, Families::V6].into_iter();
        loop {
            let options = AllocateOptions {
                families: families.next().unwrap_or_default(),
                ..AllocateOptions::default()
            };
            match Self::allocate(server, login, options).await {
                // Error 440: the server has no relayed address of this family (RFC 8656 §7.2).
                Err(CallError::Refused(440, _)) if families.len() > 0 => {}
                Err(error) => return Err(error.explain(server)),
                Ok(caller) => return Ok(caller),
            }
        }
    }

    async fn allocate(
        server: SocketAddr,
        login: Login<'_>,
        options: AllocateOptions,
    ) -> Result<Self, CallError> {
        let unspecified = IpFamily::of(server.ip()).unspecified();
        let socket = endpoint::open(unspecified).await?;
        socket.connect(server).await?;
        let config =
            ClientConfig::new(ServerAddr(server), login.user, login.password, random_bytes());
        let mut client = Client::new(config);
        client
            .allocate(Clock::now().instant, options)
            .map_err(|e| CallError::Other(e.to_string()))?;
        let mut relayed = None;
        drive(&socket, &mut client, |event| {
            if let Event::Allocated(allocation) = event {
                relayed = allocation.relayed.iter().flatten().next().map(|addr| addr.0);
            }
            relayed.is_some()
        })
        .await?;
        let relayed =
            relayed.ok_or_else(|| CallError::Other("there is no relayed address".to_owned()))?;
        Ok(Self { socket, client, relayed })
    }

    /// Binds a channel to `peer`, which also permits packets from the peer.
    pub(crate) async fn bind_channel(&mut self, peer: SocketAddr) -> Result<ChannelNumber> {
        let server = self.client.server().0;
        let bound = async {
            let channel = self
                .client
                .bind_channel(Clock::now().instant, PeerAddr(peer))
                .map_err(|error| CallError::Other(error.to_string()))?;
            drive(&self.socket, &mut self.client, |event| {
                matches!(event, Event::ChannelReady { channel: ready, .. } if *ready == channel)
            })
            .await?;
            Ok(channel)
        };
        bound.await.map_err(|error: CallError| error.explain(server))
    }
}

/// Exchanges messages with the server until `done` returns true for an event.
async fn drive(
    socket: &UdpSocket,
    client: &mut Client,
    done: impl FnMut(&Event) -> bool,
) -> Result<(), CallError> {
    timeout(SET_UP_DEADLINE, drive_on(socket, client, done))
        .await
        .map_err(|_| CallError::TimedOut)?
}

async fn drive_on(
    socket: &UdpSocket,
    client: &mut Client,
    mut done: impl FnMut(&Event) -> bool,
) -> Result<(), CallError> {
    let mut datagram = [0; 2048];
    loop {
        while let Some(request) = client.poll_transmit() {
            socket.send(request).await?;
        }
        while let Some(event) = client.poll_event() {
            if done(&event) {
                return Ok(());
            }
            match event {
                Event::Refused { code, reason, .. } => {
                    return Err(CallError::Refused(code, reason));
                }
                Event::Failed { failure, .. } => return Err(CallError::Failed(failure)),
                Event::Redirected { server, .. } => socket.connect(server.0).await?,
                Event::AllocationLost(reason) => {
                    return Err(CallError::Other(format!("the allocation was lost: {reason:?}")));
                }
                Event::Bound { .. }
                | Event::Allocated(_)
                | Event::Refreshed { .. }
                | Event::PermissionReady { .. }
                | Event::ChannelReady { .. }
                | Event::PermissionLost { .. }
                | Event::ChannelLost { .. }
                | Event::Released => {}
            }
        }
        let now = Clock::now().instant;
        let due = client.poll_timeout().unwrap_or(Instant::FAR_FUTURE).saturating_since(now);
        tokio::select! {
            received = socket.recv(&mut datagram) => {
                client.handle_datagram(Clock::now().instant, &datagram[..received?]);
            }
            () = sleep(due) => client.handle_timeout(Clock::now().instant),
        }
    }
}

/// Reason why a call could not be set up.
#[derive(Debug)]
enum CallError {
    Refused(u16, String),
    Failed(ClientFailure),
    TimedOut,
    Io(io::Error),
    Other(String),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl CallError {
    fn explain(self, server: SocketAddr) -> Failure {
        let silent = format!(
            "is it running? does a firewall let UDP port {} through? on its host `turnpike status` \
             tells more",
            server.port()
        );
        let failed = |why: String| Failure::failed(anyhow!("no call through {server}: {why}"));
        match self {
            Self::Refused(401, _) | Self::Failed(ClientFailure::IntegrityViolated) => failed(
                "user or password is wrong".to_owned(),
            )
            .hint(
                "`turnpike user list` shows the users, `turnpike user password NAME` gives one a \
                     new password",
            ),
            Self::Refused(403, reason) => failed(format!("the server refused the peer ({reason})"))
                .hint("peers.allow in the server's configuration lists exceptions"),
            Self::Refused(code, reason) => failed(format!("the server refused: {code} {reason}"))
                .hint("the server's log at level debug says why"),
            Self::TimedOut | Self::Failed(ClientFailure::TimedOut) => {
                failed("no answer".to_owned()).hint(silent)
            }
            Self::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                failed("the port is closed".to_owned()).hint(silent)
            }
            Self::Failed(failure) => failed(format!("{failure:?}")),
            Self::Io(error) => failed(error.to_string()),
            Self::Other(why) => failed(why),
        }
    }
}
