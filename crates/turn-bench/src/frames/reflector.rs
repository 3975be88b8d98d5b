//! A peer that echoes, without any socket.

use std::fmt;

use anyhow::Result;
use aya::Ebpf;

use super::{attach, object};

/// A link that sends every packet of every run back where it came from. All else passes. The link
/// is as it was when this value is dropped.
pub struct Reflector {
    interface: String,
    _object: Ebpf,
}

impl fmt::Debug for Reflector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reflector").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl Reflector {
    /// Puts the program that echoes on a link.
    ///
    /// # Errors
    /// As for [`Port::attach`](super::Port::attach).
    pub fn attach(interface: &str) -> Result<Self> {
        let mut object = object::open(object::REFLECT)?;
        attach::attach(&mut object, "reflect", interface)?;
        Ok(Self { interface: interface.to_owned(), _object: object })
    }
}

#[cfg(test)]
mod tests;
