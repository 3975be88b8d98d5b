//! This machine: kernel and processor.

use std::fs;

/// Name and release of the kernel.
pub(crate) fn kernel() -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    let read = |name| read(name).unwrap_or_default().trim().to_owned();
    format!("{} {}", read("ostype"), read("osrelease"))
}

/// Model of the processor.
pub(crate) fn processor() -> String {
    model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// Returns true if this process is root's.
pub(crate) fn is_root() -> bool {
    // The owner of one's own directory in /proc is the effective user.
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Returns true on a virtual machine; `None` where the processor does not tell.
pub(crate) fn is_virtual() -> Option<bool> {
    has_hypervisor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// A flag of x86 processors, which hypervisors set for their guests.
fn has_hypervisor(text: &str) -> Option<bool> {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'))?;
    Some(flags.1.split_whitespace().any(|flag| flag == "hypervisor"))
}

/// The model in `/proc/cpuinfo`, which on ARM is a number.
fn model(text: &str) -> String {
    let field = |wanted: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.trim() == wanted).map(|(_, value)| value.trim().to_owned())
    };
    field("model name")
        .or_else(|| Some(format!("ARM part {}", field("CPU part")?)))
        .unwrap_or_else(|| "unknown processor".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_has_a_model() {
        let text = "processor\t: 0\nmodel name\t: AMD EPYC: big\nmodel name\t: other\n";
        assert_eq!(model(text), "AMD EPYC: big");
        assert_eq!(model("CPU part\t: 0xd0c\n"), "ARM part 0xd0c");
        assert_eq!(model(""), "unknown processor");
    }

    #[test]
    fn guests_have_a_flag() {
        assert_eq!(has_hypervisor("flags\t\t: fpu hypervisor vme\n"), Some(true));
        assert_eq!(has_hypervisor("flags\t\t: fpu vme\n"), Some(false));
        assert_eq!(has_hypervisor("CPU part\t: 0xd0c\n"), None);
    }
}
