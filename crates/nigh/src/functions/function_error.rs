//! What can go wrong with functions.
//!
//! Any thread: plain data.

use crate::error::DbError;
use nigh_shm::debug_is_display;
use std::io;

debug_is_display!(FunctionError);

/// Why a library isn't loaded, or a call failed. A call that failed has written nothing, unless it
/// is [`FunctionError::Partly`] or [`DbError::NotDurable`].
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FunctionError {
    /// The database refuses.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The library is refused.
    #[error("{cause}")]
    Library {
        /// What is wrong, and where.
        cause: String,
    },
    /// The function threw, was stopped, or isn't there.
    #[error("{cause}")]
    Call {
        /// What the function threw, or what happened.
        cause: String,
    },
    /// What a function with the flag `allow-cross-slot-keys` wrote was refused in a partition, when
    /// it was done in others already.
    #[error(
        "what the call wrote is done in some partitions, and refused in another ({cause}): read the \
         keys before it is called again"
    )]
    Partly {
        /// Why it was refused.
        cause: DbError,
    },
    /// The thread of the functions, or V8, can't be started.
    #[error("functions can't be started: {source}: raise the limits of threads and memory")]
    Start {
        /// Why.
        source: io::Error,
    },
    /// The thread of the functions ended: a fault of this library.
    #[error("the thread of the functions has ended by a fault of its own: open the database again")]
    Ended,
}
