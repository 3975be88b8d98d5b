//! Warnings for the operator about the kernel. Each kind is returned once.

/// Missing or restricted kernel feature that would make sending faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A run of datagrams of this size was refused, typically because the size exceeds the MTU.
    /// Such runs to that destination are sent as single datagrams, at several times the cost. Other
    /// destinations may be affected, too.
    RunRefused {
        /// Payload size of each datagram in bytes.
        segment_size: usize,
        /// Error number from the kernel.
        errno: i32,
    },
    /// All runs are disabled after many refusals. From now on every datagram is sent singly.
    RunsOff {
        /// Error number from the kernel.
        errno: i32,
    },
    /// `sendmmsg` is missing or forbidden. Each message costs one call.
    NoSendmmsg,
}

/// Pending and returned warnings. Each kind is returned at most once.
#[derive(Default)]
pub(crate) struct Warnings {
    run_refused: Once,
    runs_off: Once,
    no_sendmmsg: Once,
}

#[derive(Default)]
enum Once {
    #[default]
    Never,
    Due(Warning),
    Given,
}

impl Warnings {
    /// Adds a warning, unless a warning of that kind was added before.
    pub(crate) const fn add(&mut self, warning: Warning) {
        let once = match warning {
            Warning::RunRefused { .. } => &mut self.run_refused,
            Warning::RunsOff { .. } => &mut self.runs_off,
            Warning::NoSendmmsg => &mut self.no_sendmmsg,
        };
        if matches!(once, Once::Never) {
            *once = Once::Due(warning);
        }
    }

    /// Returns the next warning that was not returned before.
    pub(crate) fn take(&mut self) -> Option<Warning> {
        let all = [&mut self.run_refused, &mut self.runs_off, &mut self.no_sendmmsg];
        all.into_iter().find_map(|once| {
            let Once::Due(warning) = *once else {
                return None;
            };
            *once = Once::Given;
            Some(warning)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_given_once() {
        let refused = |segment_size| Warning::RunRefused { segment_size, errno: 1 };
        let mut warnings = Warnings::default();
        assert_eq!(warnings.take(), None);
        warnings.add(refused(1));
        warnings.add(refused(2));
        warnings.add(Warning::NoSendmmsg);
        assert_eq!(warnings.take(), Some(refused(1)));
        warnings.add(refused(3));
        assert_eq!(warnings.take(), Some(Warning::NoSendmmsg));
        assert_eq!(warnings.take(), None);
    }
}
