//! Where a command runs, when it isn't the owner of the data that has the connection.
//!
//! | place | commands |
//! |---|---|
//! | here | what is about the connection, or about the server's settings |
//! | view | reads: straight from the owner's arena; sent to the owner if writes of the connection wait there |
//! | owner | writes, and all that is about libraries |
//! | call | FCALL: here if the function doesn't write, else at the owner |
//! | move | WATCH, EXEC: the connection itself goes to the owner, and stays there |
//! | wait | WAIT, WAITAOF: here, after some time maybe |
//! | desk | CONFIG SET: here, when the log's keeper has answered |
//! | refresh | what looks at the connections and counters of all shards: here, after they have told |
//!
//! Data; any thread.

use crate::commands::{Builtin, CommandSpec, Latency, Run};

/// The partition with whose owner a tenant's libraries are.
pub(crate) const LIBRARIES: usize = 0;

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Here,
    View,
    Owner,
    Call,
    Move,
    Refresh,
    Wait(Builtin),
    /// Here, when the log's keeper has answered.
    Desk,
}

pub(crate) fn of(spec: &CommandSpec) -> Place {
    use Builtin as B;
    match spec.run {
        // Only the owner knows when keys were used.
        Run::Data(_) if spec.name == "object|idletime" => Place::Owner,
        Run::Data(op) if op.only_reads() => Place::View,
        Run::Data(_) => Place::Owner,
        Run::Container => Place::Here,
        Run::Server(builtin) => match builtin {
            B::Fcall | B::FcallRo => Place::Call,
            B::FunctionLoad
            | B::FunctionList
            | B::FunctionDelete
            | B::FunctionFlush
            | B::FunctionDump
            | B::FunctionRestore => Place::Owner,
            B::Watch | B::Exec => Place::Move,
            B::Wait | B::Waitaof => Place::Wait(builtin),
            B::ConfigSet => Place::Desk,
            B::Info
            | B::ClientList
            | B::ClientKill
            | B::LocalList
            | B::LocalKill
            | B::Latency(Latency::Histogram)
            | B::MemoryStats
            | B::MemoryDoctor => Place::Refresh,
            _ => Place::Here,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;
    use crate::commands::spec::WRITE;

    /// A view can't write: no command that the table calls a write may ever run on one.
    #[test]
    fn no_write_runs_on_a_view() {
        for spec in commands::table() {
            if spec.has(WRITE) {
                let place = of(spec);
                assert!(
                    matches!(place, Place::Owner | Place::Move | Place::Call),
                    "{} is a write: {place:?}",
                    spec.name
                );
            }
        }
    }
}
