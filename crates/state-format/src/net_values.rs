//! Serialised form of addresses, paths, names, and the numbers of STUN.

use core::net::{IpAddr, SocketAddr, SocketAddrV6};

use stun_wire::{ChannelNumber, TransactionId};
use turn_types::{
    AllocationId, ClientAddr, ClientPath, ConnectionId, FiveTuple, Instant, IpFamily, PeerAddr,
    Prefix, Realm, RelayId, RelayProtocol, RelayedAddr, ServerAddr, SocketId, Transport,
    UnixSeconds, WorkerId,
};

use crate::{Malformed, Reader, Value, Writer, fields, variants};

/// Implements [`Value`] for types that wrap a single value of another type.
macro_rules! newtypes {
    ($($name:ident),+) => {
        $(impl Value for $name {
            fn write(&self, out: &mut Writer) {
                self.0.write(out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                Value::read(input).map(Self)
            }
        })+
    };
}

newtypes!(ClientAddr, ServerAddr, RelayedAddr, PeerAddr);
newtypes!(AllocationId, ConnectionId, RelayId, SocketId, WorkerId, UnixSeconds, TransactionId);

variants!(IpFamily, "address family" { 4 => V4, 6 => V6 });
variants!(Transport, "transport" { 1 => Udp, 2 => Tcp, 3 => Tls, 4 => Dtls });
variants!(RelayProtocol, "relayed protocol" { 1 => Udp, 2 => Tcp });

impl Value for Instant {
    fn write(&self, out: &mut Writer) {
        self.as_nanos().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        u64::read(input).map(Self::from_nanos)
    }
}

impl Value for IpAddr {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::V4(ip) => (IpFamily::V4, ip.octets()).write(out),
            Self::V6(ip) => (IpFamily::V6, ip.octets()).write(out),
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match IpFamily::read(input)? {
            IpFamily::V4 => input.array::<4>().map(Self::from),
            IpFamily::V6 => input.array::<16>().map(Self::from),
        }
    }
}

impl Value for SocketAddr {
    fn write(&self, out: &mut Writer) {
        (self.ip(), self.port()).write(out);
        if let Self::V6(address) = self {
            // The scope names the interface of a link-local address.
            (address.flowinfo(), address.scope_id()).write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match <(IpAddr, u16)>::read(input)? {
            (IpAddr::V4(ip), port) => Ok((ip, port).into()),
            (IpAddr::V6(ip), port) => {
                let (flow, scope) = Value::read(input)?;
                Ok(SocketAddrV6::new(ip, port, flow, scope).into())
            }
        }
    }
}

impl Value for Prefix {
    fn write(&self, out: &mut Writer) {
        (self.first(), self.len_128()).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (first, len) = <(IpAddr, u8)>::read(input)?;
        // The serialised length is that of the 128-bit form.
        let len = if first.is_ipv4() { len.checked_sub(96) } else { Some(len) };
        len.and_then(|len| Self::new(first, len).ok()).ok_or(Malformed::NoValue("prefix"))
    }
}

impl Value for Realm {
    fn write(&self, out: &mut Writer) {
        out.sized(|out| out.put(self.as_bytes()));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let name = alloc::sync::Arc::<str>::read(input)?;
        Ok((&*name).into())
    }
}

impl Value for ChannelNumber {
    fn write(&self, out: &mut Writer) {
        self.get().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::new_rfc5766(u16::read(input)?).ok_or(Malformed::NoValue("channel number"))
    }
}

fields!(FiveTuple { 1 => transport, 2 => client, 3 => server });
fields!(ClientPath { 1 => five_tuple, 2 => socket });

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::again;

    proptest! {
        #[test]
        fn addresses_and_times_read_back(address: SocketAddr, ip: IpAddr, scope: u32, nanos: u64) {
            let time = Instant::from_nanos(nanos);
            prop_assert_eq!(again(&time), Ok(time));
            prop_assert_eq!(again(&address), Ok(address));
            prop_assert_eq!(again(&ip), Ok(ip));
            let local = SocketAddr::V6(SocketAddrV6::new([0xfe80, 0, 0, 0, 0, 0, 0, 1].into(), 7, 0, scope));
            prop_assert_eq!(again(&local), Ok(local));
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes: alloc::vec::Vec<u8>) {
            let _ = Reader::new(&bytes).last::<ClientPath>();
            let _ = Reader::new(&bytes).last::<Prefix>();
        }
    }

    #[test]
    fn all_values_of_a_small_type_have_a_number() {
        for transport in Transport::ALL {
            assert_eq!(again(transport), Ok(*transport));
        }
        for protocol in [RelayProtocol::Udp, RelayProtocol::Tcp] {
            assert_eq!(again(&protocol), Ok(protocol));
        }
        for text in ["192.0.2.0/24", "2001:db8::/32", "::/0", "0.0.0.0/0"] {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(again(&prefix), Ok(prefix), "{text}");
        }
        for number in [0x4000, 0x4FFF, 0x7FFF] {
            let channel = ChannelNumber::new_rfc5766(number).unwrap();
            assert_eq!(again(&channel), Ok(channel));
        }
        assert_eq!(again(&Realm::from("example.org")), Ok("example.org".into()));
        let foreign = Reader::new(&[0, 0x10]).last::<ChannelNumber>();
        assert_eq!(foreign, Err(Malformed::NoValue("channel number")));
    }
}
