//! Warnings for the operator about the kernel, each given once.

/// The kernel cannot do something that makes sending fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A run of datagrams of this size was refused, typically because it exceeds the MTU: such runs
    /// to that destination are sent one by one, which costs several times as much. Other
    /// destinations may be affected, too.
    RunRefused {
        /// Payload bytes of each datagram.
        segment_size: usize,
        /// The kernel's error.
        errno: i32,
    },
    /// All runs are refused: everything is sent one by one from now on.
    RunsOff {
        /// The kernel's error.
        errno: i32,
    },
    /// `sendmmsg` is missing or forbidden: one call per message.
    NoSendmmsg,
}

/// At most one warning of each kind, ever.
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
    /// Notes a warning, unless there was one of its kind.
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

    /// The next warning that was not returned yet.
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
