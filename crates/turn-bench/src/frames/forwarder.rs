//! A server that only forwards: no relay can do less.

use std::fmt;

use anyhow::{Context, Result};
use aya::Ebpf;
use aya::maps::{HashMap, MapData};

use super::{Mac, attach, object};

/// `struct hop` of `bpf/forward.bpf.c`.
type HopValue = [u8; 16];

/// A link of the forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop<'a> {
    /// Its interface.
    pub interface: &'a str,
    /// Its own address.
    pub own_mac: Mac,
    /// The address of the link's other end, where packets go that leave here.
    pub far_mac: Mac,
}

/// Two links between which packets of runs go without being looked at further. All else passes. The
/// links are as they were when this value is dropped.
pub struct Forwarder {
    interfaces: [String; 2],
    _hops: HashMap<MapData, u32, HopValue>,
    _object: Ebpf,
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Forwarder").field("interfaces", &self.interfaces).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// Puts the program that forwards on two links.
    ///
    /// # Errors
    /// As for [`Port::attach`](super::Port::attach).
    pub fn attach(a: Hop<'_>, b: Hop<'_>) -> Result<Self> {
        let mut object = object::open(object::FORWARD)?;
        let map = object.take_map("hops").context("there is no map hops")?;
        let mut hops = HashMap::<MapData, u32, HopValue>::try_from(map)?;
        for (from, to) in [(a, b), (b, a)] {
            let (from, out) = (
                attach::interface_number(from.interface)?,
                attach::interface_number(to.interface)?,
            );
            let mut value = [0; 16];
            value[..4].copy_from_slice(&out.to_ne_bytes());
            value[4..10].copy_from_slice(&to.far_mac.0);
            value[10..].copy_from_slice(&to.own_mac.0);
            hops.insert(from, value, 0).context("cannot write where packets go")?;
        }
        attach::attach(&mut object, "forward", a.interface)?;
        attach::put(object::program(&mut object, "forward")?, b.interface)?;
        let interfaces = [a.interface, b.interface].map(str::to_owned);
        Ok(Self { interfaces, _hops: hops, _object: object })
    }
}
