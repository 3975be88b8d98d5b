//! Addresses of a flow's frames.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(out, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes: Result<Vec<u8>, _> =
            text.trim().split(':').map(|part| u8::from_str_radix(part, 16)).collect();
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| format!("{text:?} is no MAC address"))
    }
}

/// The flow of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFlow {
    /// Its number in the run, as packets carry it.
    pub number: u32,
    /// The MAC address of the link that sends.
    pub source_mac: Mac,
    /// The MAC address of the next hop.
    pub destination_mac: Mac,
    /// Source: the client's socket, or the peer's.
    pub source: SocketAddr,
    /// Destination: the server, or the relayed address. Of the same family as `source`.
    pub destination: SocketAddr,
    /// The channel that packets go by; `None` from the peer.
    pub channel: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read_as_they_are_written() {
        let mac = Mac([0x02, 0, 0xab, 1, 2, 0xff]);
        assert_eq!(mac.to_string(), "02:00:ab:01:02:ff");
        assert_eq!("02:00:ab:01:02:ff\n".parse(), Ok(mac));
        for wrong in ["", "02:00:ab:01:02", "02:00:ab:01:02:ff:00", "02:00:ab:01:02:xx"] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
