//! Schedules of the two flows of a call.

use std::time::Duration;

use turn_types::Instant;

/// Maximum length of a flow's packets in bytes.
pub(crate) const PACKET_MAX: usize = 1200;

/// Kind of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowKind {
    /// Small packets every 20 ms, as sent by Opus.
    Audio,
    /// Bursts of ten packets, 30 times a second, as of video frames: about 2.9 Mbit/s.
    Video,
}

impl FlowKind {
    /// Both kinds of flows.
    pub(crate) const ALL: [Self; 2] = [Self::Audio, Self::Video];

    /// Returns the index in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name in the report.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::Video => "video",
        }
    }

    /// Returns the length in bytes of packet number `sequence`. The length of audio varies, as for
    /// speech.
    pub(crate) const fn packet_len(self, sequence: u64) -> usize {
        match self {
            Self::Audio => 160 + (sequence % 41) as usize,
            Self::Video => PACKET_MAX,
        }
    }

    const fn interval(self) -> Duration {
        match self {
            Self::Audio => Duration::from_millis(20),
            Self::Video => Duration::from_nanos(1_000_000_000 / 30),
        }
    }

    const fn burst(self) -> u64 {
        match self {
            Self::Audio => 1,
            Self::Video => 10,
        }
    }
}

/// Schedule of a flow's packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) kind: FlowKind,
    next: Instant,
    sent: u64,
}

impl Schedule {
    /// Creates a schedule that starts at `start`.
    pub(crate) const fn new(kind: FlowKind, start: Instant) -> Self {
        Self { kind, next: start, sent: 0 }
    }

    /// Returns the time of the next packets, if before `end`.
    pub(crate) fn next(&self, end: Instant) -> Option<Instant> {
        (self.next < end).then_some(self.next)
    }

    /// Returns the numbers of the packets to send now: a burst if due. A delayed sender calls again
    /// until the range is empty.
    pub(crate) fn due(&mut self, now: Instant, end: Instant) -> std::ops::Range<u64> {
        let first = self.sent;
        if self.next(end).is_some_and(|next| next <= now) {
            self.next = self.next + self.kind.interval();
            self.sent += self.kind.burst();
        }
        first..self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(kind: FlowKind, seconds: u64, step: Duration) -> (u64, u64) {
        let start = Instant::from_nanos(5_000_000_000);
        let end = start + Duration::from_secs(seconds);
        let mut schedule = Schedule::new(kind, start);
        let (mut now, mut total, mut burst_max) = (start, 0, 0);
        while schedule.next(end).is_some() {
            let due = schedule.due(now, end);
            assert_eq!(due.start, total, "numbers follow each other");
            burst_max = burst_max.max(due.end - due.start);
            total = due.end;
            if due.is_empty() {
                now = now + step;
            }
        }
        assert!(schedule.due(now, end).is_empty());
        (total, burst_max)
    }

    #[test]
    fn sends_at_the_rate_of_a_call_however_late_the_sender_is() {
        for step in [Duration::from_micros(100), Duration::from_millis(300)] {
            assert_eq!(packets(FlowKind::Audio, 2, step), (100, 1));
            // 60 frames in two seconds, and one more due to the rounded interval.
            assert_eq!(packets(FlowKind::Video, 2, step), (610, 10));
        }
    }
}
