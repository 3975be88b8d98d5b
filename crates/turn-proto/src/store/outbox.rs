//! Commands and notices that wait to be polled.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use turn_types::{AllocationId, Instant, PendingId, RelayId, RelayProtocol, RelayedAddr};

use super::allocation::{Allocation, RelaySocket};
use super::channel::Channel;
use crate::io::{Command, EndReason, Notice, Refusal, Responder, RouteId, TcpCommand};
use crate::limits::NOTICES_MAX;
use crate::policy::PortLease;

/// Queued commands and notices, in order of creation. Each call into the server creates a few
/// commands at most, and the driver polls all commands before the next call. Notices are optional
/// to poll. The number of notices is bounded, except for notices of ended allocations.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    commands: VecDeque<(Command, Option<PortLease>)>,
    notices: VecDeque<Notice>,
    notices_lost: u64,
}

impl Outbox {
    pub(crate) fn command(&mut self, command: Command) {
        self.commands.push_back((command, None));
    }

    pub(crate) fn tcp(&mut self, command: TcpCommand) {
        self.command(Command::Tcp(command));
    }

    /// Opens a relay socket for a pending request.
    pub(crate) fn open(
        &mut self,
        pending: PendingId,
        protocol: RelayProtocol,
        relay: RelayId,
        at: RelayedAddr,
    ) {
        match protocol {
            RelayProtocol::Udp => self.command(Command::OpenRelay { pending, relay, at }),
            RelayProtocol::Tcp => self.tcp(TcpCommand::Listen { pending, relay, at }),
        }
    }

    /// Closes the relay socket of an allocation.
    pub(crate) fn close_socket(&mut self, socket: RelaySocket) {
        self.close_relay(socket.relay, socket.lease);
    }

    /// Closes a relay socket. The port remains claimed until the driver has polled the command,
    /// because an earlier claim could precede the close.
    pub(crate) fn close_relay(&mut self, relay: RelayId, lease: PortLease) {
        self.commands.push_back((Command::CloseRelay { relay }, Some(lease)));
    }

    /// Withdraws the route of a channel that is being removed, if the channel has a route.
    pub(crate) fn withdraw_route(&mut self, allocation: AllocationId, channel: &Channel) {
        if channel.route.is_some() {
            let channel = channel.number.get();
            self.command(Command::RemoveRoute(RouteId { allocation, channel }));
        }
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        let is_end = matches!(notice, Notice::AllocationEnded(_));
        if self.notices.len() < NOTICES_MAX || is_end {
            self.notices.push_back(notice);
        } else {
            self.notices_lost = self.notices_lost.saturating_add(1);
        }
    }

    pub(crate) fn created(&mut self, allocation: &Allocation) {
        self.notice(Notice::AllocationCreated(Box::new(allocation.record(None))));
    }

    pub(crate) fn ended(&mut self, allocation: &Allocation, reason: EndReason, now: Instant) {
        let record = allocation.record(Some((reason, now)));
        self.notice(Notice::AllocationEnded(Box::new(record)));
    }

    pub(crate) fn refused(&mut self, responder: &Responder, reason: Refusal) {
        self.notice(Notice::Refused(responder.refused(reason)));
    }

    pub(crate) fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front().map(|(command, _lease)| command)
    }

    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub(crate) const fn notices_lost(&self) -> u64 {
        self.notices_lost
    }
}
