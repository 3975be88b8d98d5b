//! One value of the host that can be read and set. The kinds are few and their parts are checked,
//! so that no state file leads to another file or command.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use crate::ethtool;
use crate::host::Host;
use crate::ranges::{CPUS, list, mask, parse, parse_mask};

/// Bytes in the name of an interface at most (IFNAMSIZ, less the ending zero).
const INTERFACE_BYTES_MAX: usize = 15;

/// A value of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Setting {
    /// A sysctl.
    Sysctl {
        /// Its name, with dots.
        name: String,
    },
    /// The processors that an interrupt may go to, as a list.
    IrqAffinity {
        /// Its number.
        irq: u32,
    },
    /// A set of processors that belongs to a queue of an interface, as a mask.
    Queue {
        /// The interface.
        interface: String,
        /// The queue: `rx-0`, `tx-3`.
        queue: String,
        /// The set.
        file: QueueFile,
    },
    /// Packets that wait for an interface to send them.
    TxQueueLength {
        /// The interface.
        interface: String,
    },
    /// A value that `ethtool` sets.
    Ethtool {
        /// The interface.
        interface: String,
        /// The value.
        value: EthtoolValue,
    },
}

/// A set of processors that belongs to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueFile {
    /// Processors that received packets are spread over.
    RpsCpus,
    /// Processors that send by this queue.
    XpsCpus,
}

/// A value that `ethtool` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EthtoolValue {
    /// Channels that receive and send.
    CombinedChannels,
    /// Channels that receive.
    RxChannels,
    /// Channels that send.
    TxChannels,
    /// Descriptors in each receive ring.
    RxRing,
    /// Descriptors in each transmit ring.
    TxRing,
    /// Adaptive interrupt coalescing.
    AdaptiveRx,
    /// Generic receive offload.
    Gro,
    /// Generic segmentation offload.
    Gso,
    /// Segmentation of UDP by the card.
    UdpSegmentation,
    /// Checksums verified by the card.
    RxChecksums,
    /// Checksums written by the card.
    TxChecksums,
}

/// Error of reading or setting a value.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// There is no such value (any more).
    #[error("there is no such value on this host")]
    Absent,
    /// The kernel refused.
    #[error("the kernel refuses: {0}")]
    Kernel(#[source] io::Error),
    /// `ethtool` refused.
    #[error("`{command}`: {complaint}")]
    Ethtool {
        /// The command.
        command: String,
        /// Its complaint.
        complaint: String,
    },
}

impl EthtoolValue {
    /// The options that show and set it, its name in the output, and the one to set it.
    const fn words(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::CombinedChannels => ("-l", "-L", "Combined", "combined"),
            Self::RxChannels => ("-l", "-L", "RX", "rx"),
            Self::TxChannels => ("-l", "-L", "TX", "tx"),
            Self::RxRing => ("-g", "-G", "RX", "rx"),
            Self::TxRing => ("-g", "-G", "TX", "tx"),
            Self::AdaptiveRx => ("-c", "-C", "Adaptive RX", "adaptive-rx"),
            Self::Gro => ("-k", "-K", "generic-receive-offload", "gro"),
            Self::Gso => ("-k", "-K", "generic-segmentation-offload", "gso"),
            Self::UdpSegmentation => ("-k", "-K", "tx-udp-segmentation", "tx-udp-segmentation"),
            Self::RxChecksums => ("-k", "-K", "rx-checksumming", "rx"),
            Self::TxChecksums => ("-k", "-K", "tx-checksumming", "tx"),
        }
    }

    /// Its name in the output of `ethtool`.
    pub(crate) const fn name(self) -> &'static str {
        self.words().2
    }

    fn parse(self, text: &str) -> Option<String> {
        let on_off = |on| if on { "on" } else { "off" }.to_owned();
        match self.words() {
            ("-l" | "-g", _, name, _) => {
                ethtool::amounts(text).current(name).map(|n| n.to_string())
            }
            ("-c", ..) => ethtool::adaptive_rx(text).map(on_off),
            (_, _, name, _) => ethtool::feature(text, name).map(|feature| on_off(feature.on)),
        }
    }

    /// Returns whether it can have this value.
    pub(crate) fn is_value(self, text: &str) -> bool {
        match self.words().0 {
            "-l" | "-g" => text.parse::<u32>().is_ok(),
            _ => text == "on" || text == "off",
        }
    }
}

impl Setting {
    /// A sysctl by its name.
    pub(crate) fn sysctl(name: &str) -> Self {
        Self::Sysctl { name: name.to_owned() }
    }

    /// Returns whether a file in sysctl.d can set it at each start.
    #[must_use]
    pub fn is_sysctl(&self) -> bool {
        matches!(self, Self::Sysctl { .. })
    }

    /// Its value now, in the form that [`Setting::write`] takes.
    ///
    /// # Errors
    /// There is no such value, or it cannot be read.
    pub fn read(&self, host: &Host) -> Result<String, SettingError> {
        let Self::Ethtool { interface, value } = self else {
            let text = host.read(&self.path()).map_err(of_kernel)?;
            return Ok(self.normal(&text));
        };
        let (show, ..) = value.words();
        let text = run(host, &[show, interface])?;
        value.parse(&text).ok_or(SettingError::Absent)
    }

    /// Sets it.
    ///
    /// # Errors
    /// The kernel or `ethtool` refuses.
    pub fn write(&self, host: &Host, value: &str) -> Result<(), SettingError> {
        let Self::Ethtool { interface, value: kind } = self else {
            return host.write(&self.path(), value).map_err(of_kernel);
        };
        let (_, set, _, name) = kind.words();
        run(host, &[set, interface, name, value]).map(drop)
    }

    /// The canonical text of a value.
    pub(crate) fn normal(&self, text: &str) -> String {
        match self {
            Self::IrqAffinity { .. } => parse(text, CPUS).map(|cpus| list(&cpus)),
            Self::Queue { .. } => parse_mask(text).map(|cpus| mask(&cpus)),
            Self::Sysctl { .. } | Self::TxQueueLength { .. } | Self::Ethtool { .. } => None,
        }
        .unwrap_or_else(|| text.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The file of the host that holds it; empty for values of `ethtool`.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Sysctl { name } => sysctl_path(name),
            Self::IrqAffinity { irq } => format!("/proc/irq/{irq}/smp_affinity_list"),
            Self::Queue { interface, queue, file } => {
                let file = match file {
                    QueueFile::RpsCpus => "rps_cpus",
                    QueueFile::XpsCpus => "xps_cpus",
                };
                format!("/sys/class/net/{interface}/queues/{queue}/{file}")
            }
            Self::TxQueueLength { interface } => {
                format!("/sys/class/net/{interface}/tx_queue_len")
            }
            Self::Ethtool { .. } => String::new(),
        }
    }
}

/// The operator's name for it: a sysctl's name, a path, a command without its value.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl { name } => f.write_str(name),
            Self::IrqAffinity { .. } | Self::Queue { .. } | Self::TxQueueLength { .. } => {
                f.write_str(&self.path())
            }
            Self::Ethtool { interface, value } => {
                let (_, set, _, name) = value.words();
                write!(f, "ethtool {set} {interface} {name}")
            }
        }
    }
}

/// Path of a sysctl.
pub(crate) fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Returns whether the kernel could give an interface this name.
pub(crate) fn is_interface(name: &str) -> bool {
    (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
}

fn run(host: &Host, arguments: &[&str]) -> Result<String, SettingError> {
    host.ethtool(arguments).map_err(|complaint| SettingError::Ethtool {
        command: format!("ethtool {}", arguments.join(" ")),
        complaint,
    })
}

fn of_kernel(error: io::Error) -> SettingError {
    if error.kind() == io::ErrorKind::NotFound {
        SettingError::Absent
    } else {
        SettingError::Kernel(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    #[test]
    fn values_are_read_in_the_form_they_are_written_in() {
        let fake = Fake::new();
        let rps = Setting::Queue {
            interface: "eth0".into(),
            queue: "rx-0".into(),
            file: QueueFile::RpsCpus,
        };
        fake.put(&rps.path(), "00000000,00000003\n");
        assert_eq!(rps.read(fake.host()).unwrap(), "3");
        rps.write(fake.host(), "1").unwrap();
        assert_eq!(rps.read(fake.host()).unwrap(), "1");
        let udp_mem = Setting::sysctl("net.ipv4.udp_mem");
        assert!(matches!(udp_mem.read(fake.host()), Err(SettingError::Absent)));
        fake.put(&udp_mem.path(), "1\t2\t3\n");
        assert_eq!(udp_mem.read(fake.host()).unwrap(), "1 2 3");
    }

    #[test]
    fn ethtool_reads_and_sets() {
        let fake = Fake::new();
        fake.card("eth0");
        let setting = |value| Setting::Ethtool { interface: "eth0".into(), value };
        for (value, before, after, said) in [
            (EthtoolValue::CombinedChannels, "1", "4", "ethtool -L eth0 combined"),
            (EthtoolValue::RxRing, "256", "4096", "ethtool -G eth0 rx"),
            (EthtoolValue::AdaptiveRx, "off", "on", "ethtool -C eth0 adaptive-rx"),
            (EthtoolValue::Gro, "off", "on", "ethtool -K eth0 gro"),
            (EthtoolValue::TxChecksums, "off", "on", "ethtool -K eth0 tx"),
        ] {
            let setting = setting(value);
            assert_eq!(setting.to_string(), said);
            assert_eq!(setting.read(fake.host()).unwrap(), before, "{said}");
            setting.write(fake.host(), after).unwrap();
            assert_eq!(setting.read(fake.host()).unwrap(), after, "{said}");
        }
        let error = setting(EthtoolValue::RxChannels).read(fake.host()).unwrap_err();
        assert!(matches!(error, SettingError::Absent), "{error}");
    }
}
