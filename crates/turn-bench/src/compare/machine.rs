//! Where it was measured.

use std::fs;

use super::cores::Cores;
use super::lab::Host;
use crate::outcome::Machine;

/// This machine, with its cores divided so.
pub(super) fn describe(cores: &Cores) -> Machine {
    let roles = Host::ALL.map(|host| (host.name().to_owned(), cores.of(host).to_vec()));
    Machine {
        kernel: kernel(),
        cpu: processor(),
        cores: linux_net::allowed_cores().map_or(0, |cores| cores.len()),
        roles: roles.into(),
    }
}

/// Name and release of the kernel.
pub(crate) fn kernel() -> String {
    let what = |what: &str| read(&format!("/proc/sys/kernel/{what}")).trim().to_owned();
    format!("{} {}", what("ostype"), what("osrelease"))
}

/// What the processor calls itself.
pub(crate) fn processor() -> String {
    processor_in(&read("/proc/cpuinfo"))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// What `/proc/cpuinfo` calls the processor; ARM has only numbers for it.
fn processor_in(text: &str) -> String {
    let named = |wanted: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim().to_owned())
    };
    named("model name")
        .or_else(|| Some(format!("ARM part {}", named("CPU part")?)))
        .unwrap_or_else(|| "unknown processor".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC: big\nmodel name\t: other\n";
        assert_eq!(processor_in(text), "AMD EPYC: big");
        assert_eq!(processor_in("CPU part\t: 0xd0c\n"), "ARM part 0xd0c");
        assert_eq!(processor_in(""), "unknown processor");
    }
}
