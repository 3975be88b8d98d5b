//! Ways between two processes of a simulated server.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::{Rc, Weak};

use dataplane::io::ConduitIo;

/// Messages that wait at one end; more find no room.
const WAITING_MAX: usize = 64;

/// Messages that wait at one end.
pub(crate) type Waiting = RefCell<VecDeque<Vec<u8>>>;

/// One end of a way.
#[derive(Debug)]
pub struct SimConduit {
    own: Rc<Waiting>,
    other: Weak<Waiting>,
}

impl SimConduit {
    /// Both ends.
    pub(crate) fn pair() -> (Self, Self) {
        let (one, other) = (Rc::<Waiting>::default(), Rc::<Waiting>::default());
        let (to_other, to_one) = (Rc::downgrade(&other), Rc::downgrade(&one));
        (Self { own: one, other: to_other }, Self { own: other, other: to_one })
    }

    /// The messages that wait here, and the other end.
    pub(crate) fn watched(&self) -> [Weak<Waiting>; 2] {
        [Rc::downgrade(&self.own), Weak::clone(&self.other)]
    }
}

impl ConduitIo for SimConduit {
    fn send(&self, message: &[u8]) -> io::Result<bool> {
        let other = self.other.upgrade().ok_or(io::ErrorKind::ConnectionRefused)?;
        let mut waiting = other.borrow_mut();
        let has_room = waiting.len() < WAITING_MAX;
        if has_room {
            waiting.push_back(message.to_vec());
        }
        Ok(has_room)
    }

    fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(message) = self.own.borrow_mut().pop_front() else {
            let is_gone = self.other.strong_count() == 0;
            return if is_gone { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(None) };
        };
        let len = message.len().min(room.len());
        room[..len].copy_from_slice(&message[..len]);
        Ok(Some(len))
    }

    fn copy(&self) -> io::Result<Self> {
        Ok(Self { own: Rc::clone(&self.own), other: Weak::clone(&self.other) })
    }
}
