//! A session of a telephone network, and the events that change it.
//!
//! ```text
//! idle ──setup──> ringing ──answer──> talking ──data, data, …──> talking ──release──> idle
//! ```
//!
//! 1. The events of a session are numbered from 1. An event is applied behind the one before it,
//!    and never a second time.
//! 2. A session is kept as text, as `nigh get session-example:7` shows it:
//!    `seq=40 phase=talking calls=2 packets=31 bytes=22417`.
//!
//! Plain data: no clock, no socket.

use anyhow::{Context, Result, bail};
use std::fmt;

/// Events of one call: its setup, its answer, data, its release.
const EVENTS_OF_CALL: u64 = 16;

/// All that is known of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Session {
    /// Number of the last event.
    pub(crate) seq: u64,
    phase: Phase,
    calls: u64,
    packets: u64,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Idle,
    Ringing,
    Talking,
}

/// What happens to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happening {
    Setup,
    Answer,
    /// A packet of so many bytes.
    Data(u32),
    Release,
}

/// An event of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) session: u32,
    pub(crate) seq: u64,
    pub(crate) happening: Happening,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is applied.
    Done,
    /// It was applied before: nothing is changed.
    Before,
    /// It can't come here: the one before it is lost.
    Impossible,
}

impl Session {
    /// Applies an event, if it is the next one.
    pub(crate) fn apply(&mut self, event: &Event) -> Step {
        if event.seq <= self.seq {
            return Step::Before;
        }
        let phase = match (self.phase, event.happening) {
            (Phase::Idle, Happening::Setup) => Phase::Ringing,
            (Phase::Ringing, Happening::Answer) => Phase::Talking,
            (Phase::Talking, Happening::Data(_)) => Phase::Talking,
            (Phase::Talking, Happening::Release) => Phase::Idle,
            _ => return Step::Impossible,
        };
        if event.seq != self.seq + 1 {
            return Step::Impossible;
        }
        (self.seq, self.phase) = (event.seq, phase);
        match event.happening {
            Happening::Data(bytes) => {
                self.packets += 1;
                self.bytes += u64::from(bytes);
            }
            Happening::Release => self.calls += 1,
            Happening::Setup | Happening::Answer => {}
        }
        Step::Done
    }

    /// Reads what [`fmt::Display`] writes.
    pub(crate) fn read(text: &[u8]) -> Result<Session> {
        let text = std::str::from_utf8(text).context("a session that is no text")?;
        let mut parts = text.split(' ');
        let mut part = |name: &str| {
            let part = parts.next().and_then(|it| it.strip_prefix(name)?.strip_prefix('='));
            part.with_context(|| format!("a session without {name}: {text}"))
        };
        let seq = part("seq")?.parse()?;
        let phase = match part("phase")? {
            "idle" => Phase::Idle,
            "ringing" => Phase::Ringing,
            "talking" => Phase::Talking,
            other => bail!("a session can't be {other}"),
        };
        let [calls, packets, bytes] = ["calls", "packets", "bytes"].map(part);
        let (calls, packets, bytes) = (calls?.parse()?, packets?.parse()?, bytes?.parse()?);
        Ok(Session { seq, phase, calls, packets, bytes })
    }

    /// Updates that `found` lacks of this one, and those that it has twice, or nobody asked for.
    pub(crate) fn compare(&self, found: &Session) -> (u64, u64) {
        if found.seq != self.seq {
            return (self.seq.saturating_sub(found.seq), found.seq.saturating_sub(self.seq));
        }
        let sum = |it: &Session| (it.packets, it.calls, it.bytes);
        (u64::from(sum(found) < sum(self)), u64::from(sum(found) > sum(self)))
    }
}

impl fmt::Display for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::Idle => "idle",
            Phase::Ringing => "ringing",
            Phase::Talking => "talking",
        };
        let Session { seq, calls, packets, bytes, .. } = self;
        write!(out, "seq={seq} phase={phase} calls={calls} packets={packets} bytes={bytes}")
    }
}

impl Event {
    /// The event of a session with this number, which follows from both.
    pub(crate) fn number(session: u32, seq: u64) -> Event {
        let happening = match seq % EVENTS_OF_CALL {
            1 => Happening::Setup,
            2 => Happening::Answer,
            0 => Happening::Release,
            _ => Happening::Data(40 + (mixed(u64::from(session), seq) % 1400) as u32),
        };
        Event { session, seq, happening }
    }
}

/// The key of a session.
pub(crate) fn key(session: u32) -> String {
    format!("session-example:{session}")
}

/// The place of a session among some workers: the one with the highest mix of both. When a worker
/// leaves, its sessions alone go elsewhere, to all the others.
pub(crate) fn owner(session: u32, workers: impl Iterator<Item = u32>) -> Option<u32> {
    workers.max_by_key(|worker| mixed(u64::from(*worker) << 32, u64::from(session)))
}

/// Bits that follow from two numbers (the mix of SplitMix64).
fn mixed(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xD1B5_4A32_D192_ED03);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three calls come event by event. Each event that comes again changes nothing, one too early
    /// is refused, and the text of each state is the state.
    #[test]
    fn events_are_applied_once_and_in_order() {
        let mut session = Session::default();
        for seq in 1..=3 * EVENTS_OF_CALL {
            let before = session;
            assert_eq!(session.apply(&Event::number(5, seq + 1)), Step::Impossible);
            assert_eq!(session, before);
            assert_eq!(session.apply(&Event::number(5, seq)), Step::Done);
            assert_ne!(session, before);
            let after = session;
            assert_eq!(session.apply(&Event::number(5, seq)), Step::Before);
            assert_eq!(session, after);
            assert_eq!(Session::read(session.to_string().as_bytes()).unwrap(), session);
        }
        assert_eq!((session.calls, session.packets), (3, 3 * (EVENTS_OF_CALL - 3)));
        assert!(Session::read(b"seq=1 phase=asleep calls=0 packets=0 bytes=0").is_err());
        assert!(Session::read(b"seq=1").is_err());
    }

    /// What is lost and what is there twice is told apart.
    #[test]
    fn lost_and_doubled_updates_are_seen() {
        let known = Session { seq: 9, packets: 6, bytes: 600, ..Session::default() };
        assert_eq!(known.compare(&known), (0, 0));
        assert_eq!(known.compare(&Session { seq: 7, ..known }), (2, 0));
        assert_eq!(known.compare(&Session { seq: 10, ..known }), (0, 1));
        assert_eq!(known.compare(&Session { packets: 7, bytes: 700, ..known }), (0, 1));
        assert_eq!(known.compare(&Session { bytes: 599, ..known }), (1, 0));
    }

    /// When a worker leaves, only its sessions move, and both others get some.
    #[test]
    fn sessions_stay_unless_their_worker_leaves() {
        let mut moved = [0; 4];
        for session in 0..300 {
            let before = owner(session, 1..4).unwrap();
            let after = owner(session, [1, 3].into_iter()).unwrap();
            if before == 2 {
                moved[after as usize] += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        assert!(moved[1] > 20 && moved[3] > 20, "{moved:?}");
    }
}
