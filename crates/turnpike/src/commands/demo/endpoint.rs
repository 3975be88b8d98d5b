//! Endpoint of a call: sends due packets, receives packets, and refreshes the allocation.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::anyhow;
use linux_net::{Clock, force_receive_buffer};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use stun_wire::ChannelNumber;
use tokio::net::UdpSocket;
use tokio::time::sleep;
use turn_client::{Client, Event, Incoming};
use turn_types::Instant;

use crate::commands::demo::flow::{FlowKind, PACKET_MAX, Schedule};
use crate::commands::demo::packet::{Direction, Stamp};
use crate::commands::demo::tally::Tallies;
use crate::failure::{Failure, Result};

/// Wait for packets in flight after the end of the call.
const GRACE: Duration = Duration::from_millis(500);

/// Maximum number of datagrams received before the endpoint sends again.
const RECEIVE_TURN: usize = 64;

/// Size of the receive buffer: the largest packet, a ChannelData header, and spare bytes that
/// reveal a longer packet.
const DATAGRAM_MAX: usize = PACKET_MAX + 64;

/// Requested size of the socket's receive buffer in bytes, limited by the system. After a pause of
/// the server, as in a restart, seconds of a call arrive in a burst. Datagrams that overflow the
/// buffer would be reported as losses of the server.
const ROOM: usize = 4 << 20;

/// Opens the socket of an endpoint.
///
/// # Errors
/// The system refuses the bind or the buffer size.
pub(crate) async fn open(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0)).await?;
    if force_receive_buffer(socket.as_fd(), ROOM).is_err() {
        set_socket_recv_buffer_size(&socket, ROOM)?;
    }
    Ok(socket)
}

/// State that both endpoints of a call share.
pub(crate) struct Call {
    pub(crate) tallies: RefCell<Tallies>,
    /// Time after which the endpoints send no packets.
    pub(crate) end: Cell<Instant>,
}

/// Path to the other endpoint.
pub(crate) enum Line {
    /// Path through the endpoint's allocation.
    Relayed {
        /// Client with the allocation and the channel.
        client: Box<Client>,
        /// Channel bound to the other endpoint.
        channel: ChannelNumber,
    },
    /// Plain datagrams to the relayed address of the other endpoint.
    Plain,
}

/// Endpoint of the call.
pub(crate) struct Endpoint<'a> {
    pub(crate) call: &'a Call,
    /// Socket connected to the server, or to the relayed address of the other endpoint.
    pub(crate) socket: &'a UdpSocket,
    pub(crate) line: Line,
    /// Direction of the endpoint's packets.
    pub(crate) direction: Direction,
}

impl Endpoint<'_> {
    /// Sends packets from `start` until the end of the call, and receives packets a little longer.
    /// Then releases the allocation.
    pub(crate) async fn run(mut self, start: Instant) -> Result<()> {
        let mut schedules = FlowKind::ALL.map(|kind| Schedule::new(kind, start));
        loop {
            let end = self.call.end.get();
            if Clock::now().instant >= end + GRACE {
                return self.release().await;
            }
            for schedule in &mut schedules {
                self.send_due(schedule, end).await?;
            }
            self.keep_up().await?;
            let next = schedules.iter().filter_map(|schedule| schedule.next(end)).min();
            let wake = next.unwrap_or(end + GRACE).min(self.upkeep_due());
            tokio::select! {
                readable = self.socket.readable() => {
                    readable?;
                    self.receive()?;
                }
                () = sleep(wake.saturating_since(Clock::now().instant)) => {}
            }
        }
    }

    async fn send_due(&self, schedule: &mut Schedule, end: Instant) -> Result<()> {
        let flow = schedule.kind;
        loop {
            let due = schedule.due(Clock::now().instant, end);
            if due.is_empty() {
                return Ok(());
            }
            for sequence in due {
                let sent = Clock::now().instant;
                let stamp = Stamp { flow, direction: self.direction, sequence, sent };
                self.send(stamp).await?;
            }
        }
    }

    async fn send(&self, stamp: Stamp) -> Result<()> {
        let mut packet = [0; PACKET_MAX];
        let packet = &mut packet[..stamp.flow.packet_len(stamp.sequence)];
        stamp.write(packet);
        self.call.tallies.borrow_mut().note_sent(stamp.flow, self.direction);
        let sent = match &self.line {
            Line::Plain => self.socket.send(packet).await,
            Line::Relayed { client, channel } => {
                let mut datagram = [0; DATAGRAM_MAX];
                match client.write_channel_data(&mut datagram, *channel, packet) {
                    Some(len) => self.socket.send(&datagram[..len]).await,
                    None => Err(io::Error::other("a packet of the demo is too long")),
                }
            }
        };
        self.tolerate(sent).map(drop)
    }

    /// Receives waiting packets.
    fn receive(&mut self) -> Result<()> {
        let mut datagram = [0; DATAGRAM_MAX];
        for _ in 0..RECEIVE_TURN {
            let received = self.socket.try_recv(&mut datagram);
            if received.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                return Ok(());
            }
            let Some(len) = self.tolerate(received)? else { continue };
            self.take(&datagram[..len]);
        }
        Ok(())
    }

    fn take(&mut self, datagram: &[u8]) {
        let now = Clock::now().instant;
        let other = match self.direction {
            Direction::Forth => Direction::Back,
            Direction::Back => Direction::Forth,
        };
        let payload = match &mut self.line {
            Line::Plain => datagram,
            Line::Relayed { client, .. } => match client.handle_datagram(now, datagram) {
                Incoming::Data { payload, .. } => payload,
                Incoming::Icmp { .. } | Incoming::Answer | Incoming::Ignored(_) => return,
            },
        };
        self.call.tallies.borrow_mut().note_arrived(now, other, payload);
    }

    /// Refreshes the allocation. Fails if the allocation is lost.
    async fn keep_up(&mut self) -> Result<()> {
        let Line::Relayed { client, .. } = &mut self.line else { return Ok(()) };
        client.handle_timeout(Clock::now().instant);
        while let Some(request) = client.poll_transmit() {
            self.socket.send(request).await?;
        }
        while let Some(event) = client.poll_event() {
            match event {
                Event::AllocationLost(reason) => {
                    return Err(Failure::failed(anyhow!("the allocation was lost: {reason:?}")));
                }
                Event::ChannelLost { .. } | Event::PermissionLost { .. } => {
                    return Err(Failure::failed(anyhow!("the channel could not be refreshed")));
                }
                Event::Bound { .. }
                | Event::Allocated(_)
                | Event::Refreshed { .. }
                | Event::PermissionReady { .. }
                | Event::ChannelReady { .. }
                | Event::Redirected { .. }
                | Event::Refused { .. }
                | Event::Failed { .. }
                | Event::Released => {}
            }
        }
        Ok(())
    }

    /// Releases the allocation before its expiry. Sends one packet, and does not wait for the
    /// response.
    async fn release(&mut self) -> Result<()> {
        if let Line::Relayed { client, .. } = &mut self.line
            && client.release(Clock::now().instant).is_ok()
        {
            while let Some(request) = client.poll_transmit() {
                self.socket.send(request).await?;
            }
        }
        Ok(())
    }

    fn upkeep_due(&self) -> Instant {
        match &self.line {
            Line::Plain => Instant::FAR_FUTURE,
            Line::Relayed { client, .. } => client.poll_timeout().unwrap_or(Instant::FAR_FUTURE),
        }
    }

    /// Converts the result of a socket operation. A datagram that is refused on a plain path is
    /// lost, and the tallies record the loss. A refused datagram on a relayed path means that the
    /// server has exited.
    fn tolerate(&self, outcome: io::Result<usize>) -> Result<Option<usize>> {
        match outcome {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() != ErrorKind::ConnectionRefused => Err(error.into()),
            Err(_) => match self.line {
                Line::Plain => Ok(None),
                Line::Relayed { .. } => {
                    Err(Failure::failed(anyhow!("the server is gone: its port is closed")))
                }
            },
        }
    }
}
