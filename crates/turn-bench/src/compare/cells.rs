//! Cells: kinds of load.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use crate::packet;
use crate::traffic::{Direction, Shape};

/// The most flows of a cell: each is a socket at the client and a port at the server.
const FLOWS_MAX: u32 = 20_000;
/// The longest payload that a link takes with all headers before it.
const SIZE_MAX: u16 = 1400;

/// One kind of load, in JSON as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Cell {
    /// Relayed packets.
    Traffic {
        /// Order in which flows take turns.
        shape: Shape,
        /// Number of flows.
        flows: u32,
        /// Direction of packets.
        direction: Direction,
        /// Payload bytes.
        size: u16,
    },
    /// Allocations, each with its challenge, released at once.
    Allocations,
    /// Memory of idle allocations.
    Footprint,
}

/// Cells of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellList(pub Vec<Cell>);

/// The greatest differences, in less than ten minutes on two cores.
const QUICK: &str = "audio:100:c2p,audio:100:p2c,video:100:c2p,alloc,footprint";
/// Both directions and more sizes of everything.
const STANDARD: &str = "audio:1:c2p,audio:100:c2p,audio:100:p2c,audio:1000:c2p,audio:1000:p2c,\
                        video:100:c2p,video:100:p2c,video:1000:c2p,video:1000:p2c,\
                        video:100:c2p:200,flood:1:c2p,flood:1:p2c,alloc,footprint";
/// All known differences.
const FULL: &str = "audio:1:c2p,audio:1:p2c,audio:100:c2p,audio:100:p2c,audio:100:echo,\
                    audio:1000:c2p,audio:1000:p2c,audio:4000:c2p,audio:4000:p2c,\
                    video:100:c2p:200,video:100:p2c:200,video:100:c2p,video:100:p2c,\
                    video:100:echo,video:1000:c2p,video:1000:p2c,video:4000:c2p,\
                    flood:1:c2p,flood:1:p2c,flood:100:c2p,flood:100:p2c,alloc,footprint";

impl FromStr for CellList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let list = match text {
            "quick" => QUICK,
            "standard" => STANDARD,
            "full" => FULL,
            other => other,
        };
        let cells: Vec<Cell> = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
        if let Some(twice) = (1..cells.len()).find(|&at| cells[..at].contains(&cells[at])) {
            return Err(format!("{} is there twice", cells[twice]));
        }
        Ok(Self(cells))
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "alloc" => return Ok(Self::Allocations),
            "footprint" => return Ok(Self::Footprint),
            _ => {}
        }
        let wrong = |reason: &str| {
            format!(
                "{text:?}: {reason}; write alloc, footprint or SHAPE:FLOWS:DIRECTION[:BYTES], such as video:100:c2p:1200"
            )
        };
        let mut parts = text.split(':');
        let shape = parts.next().unwrap_or_default();
        let shape = Shape::from_str(shape, true)
            .map_err(|_| wrong("the shape is audio, video, flood or uneven"))?;
        let flows = parts.next().and_then(|part| part.parse().ok());
        let flows = flows
            .filter(|flows| (1..=FLOWS_MAX).contains(flows))
            .ok_or_else(|| wrong("flows are 1 to 20000"))?;
        let direction = match parts.next() {
            Some("c2p") => Direction::ClientToPeer,
            Some("p2c") => Direction::PeerToClient,
            Some("echo") => Direction::Echo,
            _ => return Err(wrong("the direction is c2p, p2c or echo")),
        };
        let size = match parts.next() {
            None => Some(shape.default_size()),
            Some(part) => part.parse().ok(),
        };
        let size = size
            .filter(|size| (packet::HEADER as u16..=SIZE_MAX).contains(size))
            .ok_or_else(|| wrong("bytes are 24 to 1400"))?;
        if parts.next().is_some() {
            return Err(wrong("there is too much of it"));
        }
        Ok(Self::Traffic { shape, flows, direction, size })
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Traffic { shape, flows, direction, size } => {
                let shape = match shape {
                    Shape::Audio => "audio",
                    Shape::Video => "video",
                    Shape::Flood => "flood",
                    Shape::Uneven => "uneven",
                };
                let direction = match direction {
                    Direction::ClientToPeer => "c2p",
                    Direction::PeerToClient => "p2c",
                    Direction::Echo => "echo",
                };
                write!(out, "{shape}:{flows}:{direction}:{size}")
            }
            Self::Allocations => out.write_str("alloc"),
            Self::Footprint => out.write_str("footprint"),
        }
    }
}

impl TryFrom<String> for Cell {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Cell> for String {
    fn from(cell: Cell) -> Self {
        cell.to_string()
    }
}

impl Cell {
    /// Number of sessions.
    pub(crate) const fn flows(&self) -> u32 {
        match self {
            Self::Traffic { flows, .. } => *flows,
            Self::Allocations | Self::Footprint => 0,
        }
    }

    /// True for packets that only sockets send.
    pub(crate) const fn wants_sockets(&self) -> bool {
        matches!(self, Self::Traffic { shape: Shape::Uneven, .. })
    }

    /// Direction of its packets, if it has any.
    pub(crate) const fn direction(&self) -> Option<Direction> {
        match self {
            Self::Traffic { direction, .. } => Some(*direction),
            Self::Allocations | Self::Footprint => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_they_are_written() {
        for text in
            ["audio:100:c2p:200", "video:1:p2c:1400", "flood:20000:echo:24", "alloc", "footprint"]
        {
            assert_eq!(text.parse::<Cell>().unwrap().to_string(), text);
        }
        assert_eq!("audio:7:c2p".parse::<Cell>().unwrap().to_string(), "audio:7:c2p:200");
        assert_eq!("video:7:c2p".parse::<Cell>().unwrap().to_string(), "video:7:c2p:1200");
    }

    #[test]
    fn errors_name_the_wrong_part_of_a_cell() {
        let cases = [
            ("", "shape"),
            ("speech:1:c2p", "shape"),
            ("audio", "flows"),
            ("audio:0:c2p", "flows"),
            ("audio:20001:c2p", "flows"),
            ("audio:1", "direction"),
            ("audio:1:up", "direction"),
            ("audio:1:c2p:23", "bytes"),
            ("audio:1:c2p:1401", "bytes"),
            ("audio:1:c2p:x", "bytes"),
            ("audio:1:c2p:200:1", "too much"),
        ];
        for (text, part) in cases {
            let error = text.parse::<Cell>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_sets_are_lists_of_cells() {
        for set in ["quick", "standard", "full"] {
            let CellList(cells) = set.parse().unwrap();
            assert!(
                cells.contains(&Cell::Allocations) && cells.contains(&Cell::Footprint),
                "{set}"
            );
        }
        assert_eq!("alloc,footprint".parse::<CellList>().unwrap().0.len(), 2);
        assert!("alloc,alloc".parse::<CellList>().unwrap_err().contains("twice"));
        assert!("alloc,".parse::<CellList>().is_err());
    }
}
