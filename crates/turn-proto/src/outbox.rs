//! What waits to be polled: commands and notices.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use turn_types::{AllocationId, PendingId, RelayId, RelayProtocol, RelayedAddr};

use crate::allocation::{Allocation, Half};
use crate::channel::Channel;
use crate::command::{Command, TcpCommand};
use crate::limits::NOTICES_MAX;
use crate::notice::Notice;
use crate::ports::PortLease;
use crate::route::RouteId;

/// Commands and notices in the order they arose. Each call into the server makes a few commands at
/// most, and its driver polls them before the next call; notices may be left, and are bounded.
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

    /// Has a relay socket opened for a request that waits.
    pub(crate) fn open(
        &mut self,
        (pending, protocol): (PendingId, RelayProtocol),
        relay: RelayId,
        at: RelayedAddr,
    ) {
        match protocol {
            RelayProtocol::Udp => self.command(Command::OpenRelay { pending, relay, at }),
            RelayProtocol::Tcp => self.tcp(TcpCommand::Listen { pending, relay, at }),
        }
    }

    /// Has a relay socket closed. Its port stays taken until the command has been polled, so that
    /// nobody is given it before.
    pub(crate) fn close(&mut self, half: Half) {
        let Half { relay, lease, .. } = half;
        self.close_claimed(relay, lease);
    }

    /// The same for a socket that no allocation has.
    pub(crate) fn close_claimed(&mut self, relay: RelayId, lease: PortLease) {
        self.commands.push_back((Command::CloseRelay { relay }, Some(lease)));
    }

    /// Withdraws the route of a channel that an allocation lets go of, if it has one.
    pub(crate) fn let_go(&mut self, allocation: AllocationId, channel: &Channel) {
        if channel.announced.is_some() {
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
