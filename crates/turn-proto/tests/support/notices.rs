//! The notices of a server, by kind. Each look takes all that came since the last.

use turn_proto::{AllocationRecord, EndReason, Notice, Refusal, ShareHolder};

use super::World;

impl World {
    /// Reasons of refused requests.
    pub fn refusals(&mut self) -> Vec<Refusal> {
        self.notices_that(|notice| match notice {
            Notice::Refused(refused) => Some(refused.reason),
            _ => None,
        })
    }

    /// Holder of the share that was the reason of the last refused request.
    pub fn share_holder(&mut self) -> Option<ShareHolder> {
        let mut shares = self.notices_that(|notice| match notice {
            Notice::Refused(refused) => Some(refused.share),
            _ => None,
        });
        shares.pop().flatten()
    }

    /// Allocations that were refreshed.
    pub fn refreshed(&mut self) -> Vec<AllocationRecord> {
        self.notices_that(|notice| match notice {
            Notice::AllocationRefreshed(record) => Some(*record),
            _ => None,
        })
    }

    /// Reasons of allocations that ended.
    pub fn ends(&mut self) -> Vec<EndReason> {
        self.notices_that(|notice| match notice {
            Notice::AllocationEnded(record) => record.end.map(|(reason, _)| reason),
            _ => None,
        })
    }

    fn notices_that<T>(&mut self, pick: impl FnMut(Notice) -> Option<T>) -> Vec<T> {
        std::mem::take(&mut self.notices).into_iter().filter_map(pick).collect()
    }
}
