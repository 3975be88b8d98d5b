//! One end of the call: sends due packets, receives, keeps its allocation alive.

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

/// Wait for packets that are still in flight at the end.
const GRACE: Duration = Duration::from_millis(500);

/// Datagrams taken before it is looked again whether something is to be sent.
const RECEIVE_TURN: usize = 64;

/// ChannelData header in front of the largest packet, and room to see that one is too long.
const DATAGRAM_MAX: usize = PACKET_MAX + 64;

/// Room for what comes at once when a server has paused, as in a restart: seconds of a call, as far
/// as the system allows. What an end has no room for would count as lost by the server.
const ROOM: usize = 4 << 20;

/// Opens the socket of an end.
///
/// # Errors
/// The system refuses.
pub(crate) async fn open(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0)).await?;
    if force_receive_buffer(socket.as_fd(), ROOM).is_err() {
        set_socket_recv_buffer_size(&socket, ROOM)?;
    }
    Ok(socket)
}

/// State shared by both ends of a call.
pub(crate) struct Call {
    pub(crate) tallies: RefCell<Tallies>,
    /// Nothing is sent from here on.
    pub(crate) end: Cell<Instant>,
}

/// Path to the other end.
pub(crate) enum Line {
    /// Through its allocation.
    Relayed {
        /// Has the allocation and the channel.
        client: Box<Client>,
        /// Bound to the other end.
        channel: ChannelNumber,
    },
    /// By plain datagrams to the other end's relayed address.
    Plain,
}

/// One end of the call.
pub(crate) struct Endpoint<'a> {
    pub(crate) call: &'a Call,
    /// Connected to the server, or to the other end's relayed address.
    pub(crate) socket: &'a UdpSocket,
    pub(crate) line: Line,
    /// Which way its packets go.
    pub(crate) direction: Direction,
}

impl Endpoint<'_> {
    /// Sends from `start` until the call's end, receives a little longer, and gives its allocation
    /// back.
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

    /// Refreshes the allocation, and fails when it is gone.
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

    /// Gives the allocation back, so that it does not stay until it expires. One packet, and no
    /// waiting for the answer.
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

    /// A datagram that did not get through is lost, and counted as that; a server that is gone
    /// ends the demo.
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
