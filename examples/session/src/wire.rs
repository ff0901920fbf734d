//! What driver and worker say to each other on a Unix socket: frames of a fixed size.
//!
//! | event, 24 bytes | | answer, 24 bytes | |
//! |---|---|---|---|
//! | 0 | session, u32 | 0 | session, u32 |
//! | 4 | what happens: 0 setup, 1 answer, 2 data, 3 release, u32 | 4 | what became of it: 0 done, 1 done before, 2 impossible, 3 the worker is ready, u32 |
//! | 8 | number, u64 | 8 | number, u64 |
//! | 16 | bytes of data, u32; zero, u32 | 16 | how long the update took, ns, u64 |
//!
//! All numbers are little-endian. Plain data.

use crate::session::{Event, Happening, Step};
use anyhow::{Result, bail};

/// Bytes of a frame.
pub(crate) const FRAME_BYTES: usize = 24;

pub(crate) type Frame = [u8; FRAME_BYTES];

/// What a worker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It takes events.
    Ready,
    /// An event is acknowledged, or impossible.
    Of { session: u32, seq: u64, step: Step, took_ns: u64 },
}

fn frame(a: u32, b: u32, c: u64, d: u64) -> Frame {
    let mut frame = [0; FRAME_BYTES];
    frame[..4].copy_from_slice(&a.to_le_bytes());
    frame[4..8].copy_from_slice(&b.to_le_bytes());
    frame[8..16].copy_from_slice(&c.to_le_bytes());
    frame[16..].copy_from_slice(&d.to_le_bytes());
    frame
}

fn parts(frame: &Frame) -> (u32, u32, u64, u64) {
    let (halves, words) = (frame.as_chunks::<4>().0, frame.as_chunks::<8>().0);
    let [a, b] = [0, 1].map(|at| u32::from_le_bytes(halves[at]));
    let [c, d] = [1, 2].map(|at| u64::from_le_bytes(words[at]));
    (a, b, c, d)
}

impl Event {
    pub(crate) fn to_frame(self) -> Frame {
        let (kind, bytes) = match self.happening {
            Happening::Setup => (0, 0),
            Happening::Answer => (1, 0),
            Happening::Data(bytes) => (2, bytes),
            Happening::Release => (3, 0),
        };
        frame(self.session, kind, self.seq, u64::from(bytes))
    }

    pub(crate) fn of_frame(frame: &Frame) -> Result<Event> {
        let (session, kind, seq, bytes) = parts(frame);
        let happening = match kind {
            0 => Happening::Setup,
            1 => Happening::Answer,
            2 => Happening::Data(u32::try_from(bytes)?),
            3 => Happening::Release,
            other => bail!("the driver sent an event of kind {other}"),
        };
        Ok(Event { session, seq, happening })
    }
}

impl Answer {
    pub(crate) fn to_frame(self) -> Frame {
        match self {
            Answer::Ready => frame(0, 3, 0, 0),
            Answer::Of { session, seq, step, took_ns } => {
                let step = match step {
                    Step::Done => 0,
                    Step::Before => 1,
                    Step::Impossible => 2,
                };
                frame(session, step, seq, took_ns)
            }
        }
    }

    pub(crate) fn of_frame(frame: &Frame) -> Result<Answer> {
        let (session, step, seq, took_ns) = parts(frame);
        let step = match step {
            0 => Step::Done,
            1 => Step::Before,
            2 => Step::Impossible,
            3 => return Ok(Answer::Ready),
            other => bail!("a worker sent an answer of kind {other}"),
        };
        Ok(Answer::Of { session, seq, step, took_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was said is what arrives.
    #[test]
    fn frames_carry_events_and_answers() {
        for seq in 1..40 {
            let event = Event::number(7, seq);
            assert_eq!(Event::of_frame(&event.to_frame()).unwrap(), event);
        }
        for step in [Step::Done, Step::Before, Step::Impossible] {
            let answer = Answer::Of { session: u32::MAX, seq: 1 << 40, step, took_ns: 1500 };
            assert_eq!(Answer::of_frame(&answer.to_frame()).unwrap(), answer);
        }
        assert_eq!(Answer::of_frame(&Answer::Ready.to_frame()).unwrap(), Answer::Ready);
        assert!(Answer::of_frame(&[9; FRAME_BYTES]).is_err());
        assert!(Event::of_frame(&[9; FRAME_BYTES]).is_err());
    }
}
