//! Contents of the demo's packets: flow, direction, sequence number and time of sending. The
//! payload depends on the sequence number, to detect damage.

use turn_types::Instant;

use crate::commands::demo::flow::FlowKind;

const MAGIC: [u8; 4] = *b"TPdm";

/// Length of the header in bytes: magic, flow, direction, sequence number, time.
pub(crate) const HEADER: usize = 4 + 1 + 1 + 8 + 8;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Packet from the first endpoint, which is always a client of the server.
    Forth,
    /// Packet from the second endpoint.
    Back,
}

impl Direction {
    /// Both directions.
    pub(crate) const ALL: [Self; 2] = [Self::Forth, Self::Back];

    /// Returns the index in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Contents of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) flow: FlowKind,
    pub(crate) direction: Direction,
    /// Sequence number per flow and direction, from 0.
    pub(crate) sequence: u64,
    pub(crate) sent: Instant,
}

impl Stamp {
    /// Fills `packet`, which must have space for the header.
    pub(crate) fn write(&self, packet: &mut [u8]) {
        let (header, filling) = packet.split_at_mut(HEADER);
        header[..4].copy_from_slice(&MAGIC);
        header[4] = self.flow.index() as u8;
        header[5] = self.direction.index() as u8;
        header[6..14].copy_from_slice(&self.sequence.to_be_bytes());
        header[14..].copy_from_slice(&self.sent.as_nanos().to_be_bytes());
        filling.fill(self.filler());
    }

    /// Parses a packet. Returns `None` if the packet is damaged or does not belong to the demo.
    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let (header, filling) = packet.split_at_checked(HEADER)?;
        let (magic, rest) = header.split_first_chunk::<4>()?;
        let ([flow, direction], rest) = rest.split_first_chunk::<2>()?;
        let (sequence, sent) = rest.split_first_chunk::<8>()?;
        let stamp = Self {
            flow: *FlowKind::ALL.get(usize::from(*flow))?,
            direction: *Direction::ALL.get(usize::from(*direction))?,
            sequence: u64::from_be_bytes(*sequence),
            sent: Instant::from_nanos(u64::from_be_bytes(sent.try_into().ok()?)),
        };
        let whole = *magic == MAGIC
            && packet.len() == stamp.flow.packet_len(stamp.sequence)
            && filling.iter().all(|byte| *byte == stamp.filler());
        whole.then_some(stamp)
    }

    const fn filler(&self) -> u8 {
        (self.sequence % 251) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::flow::PACKET_MAX;

    #[test]
    fn reads_what_it_wrote_and_sees_damage() {
        for flow in FlowKind::ALL {
            let stamp = Stamp {
                flow,
                direction: Direction::Back,
                sequence: 0x0102_0304_0506,
                sent: Instant::from_nanos(77),
            };
            let mut packet = [0; PACKET_MAX];
            let packet = &mut packet[..flow.packet_len(stamp.sequence)];
            stamp.write(packet);
            assert_eq!(Stamp::read(packet), Some(stamp));
            assert_eq!(Stamp::read(&packet[..packet.len() - 1]), None, "cut short");
            for paths in [0, 4, 5, 6, packet.len() - 1] {
                packet[paths] ^= 0x40;
                assert_eq!(Stamp::read(packet), None, "byte {paths}");
                packet[paths] ^= 0x40;
            }
        }
        assert_eq!(Stamp::read(&[]), None);
    }
}
