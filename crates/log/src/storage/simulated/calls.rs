//! CallPlan to the simulated disk: they are counted, one can be made to fail, and from one on the
//! machine can stand still.

use rustix::io::Errno;
use std::io;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimFault {
    /// `EIO`: some of what was asked may be done.
    Io,
    /// `ENOSPC`.
    NoSpace,
    /// `ENOMEM`, of the next read.
    NoMemory,
    /// A read or write does only a part; another call works.
    Short,
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum CallFate {
    Works,
    /// Only a part, and no error.
    Short,
    /// Perhaps a part, and this error.
    Fails(io::Error),
    /// Perhaps a part: nobody sees the answer.
    Stops(io::Error),
    /// Nothing.
    Stopped(io::Error),
}

/// The calls of one disk.
#[derive(Debug, Clone, Default)]
pub(super) struct CallPlan {
    pub(super) made: u64,
    pub(super) fault: Option<(u64, SimFault)>,
    /// What the call was that had the fault.
    pub(super) hit: Option<String>,
    pub(super) stop_at: Option<u64>,
}

impl CallPlan {
    /// One more call.
    pub(super) fn next(&mut self, what: &str, name: &str) -> CallFate {
        let stands = || io::Error::other("the machine stands still");
        self.made += 1;
        match self.stop_at {
            Some(at) if self.made > at => return CallFate::Stopped(stands()),
            Some(at) if self.made == at => return CallFate::Stops(stands()),
            _ => {}
        }
        let is_hit =
            |at, fault| at <= self.made && (fault != SimFault::NoMemory || what == "read_at");
        let Some((_, fault)) = self.fault.take_if(|(at, fault)| is_hit(*at, *fault)) else {
            return CallFate::Works;
        };
        self.hit = Some(format!("{what} {name}"));
        match fault {
            SimFault::Io => CallFate::Fails(Errno::IO.into()),
            SimFault::NoSpace => CallFate::Fails(Errno::NOSPC.into()),
            SimFault::NoMemory => CallFate::Fails(Errno::NOMEM.into()),
            SimFault::Short => CallFate::Short,
        }
    }
}
