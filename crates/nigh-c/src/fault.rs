//! How a call ends: its status, and the message of its error, one for each thread.
//!
//! 1. A panic ends here.
//! 2. A message stays until the thread's next call that fails.
//! 3. A message names the database, or the server's address, that the call was about (`handles.rs`
//!    adds it), if there is one.
//!
//! Any thread.

use nigh::{DbError, OpenError, PlaceError, ReaderError};
use nigh_client::{AddressError, CallError, TooNew, says_too_long};
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a call ended. 0 and above are answers, below are errors.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "the names in C")]
pub enum nigh_status {
    /// It is done.
    NIGH_OK = 0,
    /// The key isn't there.
    NIGH_NOT_FOUND = 1,
    /// The key's value isn't the expected one, or a condition doesn't hold: nothing is written.
    NIGH_MISMATCH = 2,
    /// The buffer is too small for the value: nothing is copied.
    NIGH_TOO_SMALL = 3,
    /// No change came in time.
    NIGH_NONE_YET = 4,
    /// An argument can't be: NULL, or out of its bounds.
    NIGH_INVALID = -1,
    /// The handle names nothing that is open: it is closed, or was never opened.
    NIGH_CLOSED = -2,
    /// The database is open already, here or in another process.
    NIGH_IN_USE = -3,
    /// The database is damaged.
    NIGH_DAMAGED = -4,
    /// The database can't be opened for another cause.
    NIGH_CANNOT_OPEN = -5,
    /// A key, a value or a batch is too long.
    NIGH_TOO_LARGE = -6,
    /// Data fills the memory that the database may take.
    NIGH_FULL = -7,
    /// The system gives no memory.
    NIGH_NO_MEMORY = -8,
    /// The value is no number, or the sum is out of range.
    NIGH_NOT_A_NUMBER = -9,
    /// The disk, or memory that others hold, doesn't keep up; a view finds no moment. Try later.
    NIGH_BUSY = -10,
    /// The change is made and survives this process, but isn't known to be on disk: that takes too
    /// long, or the log broke. Flush to wait again, and don't close before. A write that has
    /// changed nothing never gets this.
    NIGH_NOT_DURABLE = -11,
    /// The log's disk is full. Deletes still work.
    NIGH_LOG_FULL = -12,
    /// The log broke, and is written anew from memory: write again later, and don't close.
    NIGH_LOG_BROKEN = -13,
    /// More threads have read, and not ended, than the database was opened for.
    NIGH_TOO_MANY_THREADS = -14,
    /// The write, or a client's request, is refused for another cause.
    NIGH_REFUSED = -15,
    /// A fault of Nigh's own.
    NIGH_FAULT = -16,
    /// The snapshot held back more memory than it may: take another and read it faster.
    NIGH_SNAPSHOT_TOO_OLD = -17,
    /// No process has the database open that is to be read: read again when one has.
    NIGH_NOT_OPEN = -18,
    /// The log hasn't all changes any more that a watch was to tell.
    NIGH_CHANGES_GONE = -19,
    /// Of a client: there is no server now. Nothing was sent: call again, or have calls wait.
    NIGH_NO_SERVER = -20,
    /// Of a client: the server can't be used so. The password is wrong, for example.
    NIGH_CANNOT_CONNECT = -21,
    /// Of a client: the request was sent, and the reply is lost. Maybe it happened: read first.
    NIGH_UNKNOWN = -22,
    /// Of a client: a read has no answer. Nothing was changed: read again.
    NIGH_UNANSWERED = -23,
    /// Of a client: the reply is none that the command has. Is it another kind of server?
    NIGH_UNEXPECTED = -24,
    /// Of a client: it doesn't read the server's memory, and the call or its options take that.
    NIGH_NOT_LOCAL = -25,
    /// So many snapshots, watches or other handles are open as there may be: end one.
    NIGH_TOO_MANY = -26,
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) status: nigh_status,
    message: String,
}

impl Fault {
    /// An error of the boundary's own.
    pub(crate) fn new(status: nigh_status, message: impl Into<String>) -> Fault {
        Fault { status, message: message.into() }
    }

    /// An argument that can't be.
    pub(crate) fn invalid(message: impl Into<String>) -> Fault {
        Fault::new(nigh_status::NIGH_INVALID, message)
    }

    /// The same with the name of the thing that the call was about, if the message hasn't it.
    #[cold]
    pub(crate) fn of(mut self, name: &str) -> Fault {
        if !self.message.contains(name) {
            self.message = format!("{name}: {}", self.message);
        }
        self
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        let status = match error {
            OpenError::InUse { .. } | OpenError::MemoryInUse { .. } => nigh_status::NIGH_IN_USE,
            OpenError::Damaged { .. } => nigh_status::NIGH_DAMAGED,
            OpenError::Option { .. } | OpenError::KeepsPrivate | OpenError::NoPath => {
                nigh_status::NIGH_INVALID
            }
            _ => nigh_status::NIGH_CANNOT_OPEN,
        };
        Fault::new(status, error.to_string())
    }
}

impl From<DbError> for Fault {
    fn from(error: DbError) -> Fault {
        let status = match error {
            DbError::KeyTooLong { .. }
            | DbError::ValueTooLong { .. }
            | DbError::BatchTooLarge { .. } => nigh_status::NIGH_TOO_LARGE,
            DbError::Full => nigh_status::NIGH_FULL,
            DbError::NoMemory { .. } => nigh_status::NIGH_NO_MEMORY,
            DbError::NotANumber | DbError::Overflow => nigh_status::NIGH_NOT_A_NUMBER,
            DbError::Held | DbError::Late => nigh_status::NIGH_BUSY,
            DbError::NotDurable { .. } => nigh_status::NIGH_NOT_DURABLE,
            DbError::LogFull { .. } => nigh_status::NIGH_LOG_FULL,
            DbError::LogBroken { .. } => nigh_status::NIGH_LOG_BROKEN,
            DbError::TooManyThreads { .. } => nigh_status::NIGH_TOO_MANY_THREADS,
            DbError::TooManySnapshots { .. } | DbError::TooManyWatches { .. } => {
                nigh_status::NIGH_TOO_MANY
            }
            DbError::Stopped => nigh_status::NIGH_FAULT,
            DbError::SnapshotTooOld { .. } => nigh_status::NIGH_SNAPSHOT_TOO_OLD,
            DbError::ChangesGone { .. } => nigh_status::NIGH_CHANGES_GONE,
            DbError::PlaceAhead { .. }
            | DbError::PlacePartitions { .. }
            | DbError::PlaceOfOther => nigh_status::NIGH_INVALID,
            DbError::Closed => nigh_status::NIGH_CLOSED,
            _ => nigh_status::NIGH_REFUSED,
        };
        Fault::new(status, error.to_string())
    }
}

impl From<PlaceError> for Fault {
    fn from(error: PlaceError) -> Fault {
        Fault::invalid(error.to_string())
    }
}

impl From<ReaderError> for Fault {
    fn from(error: ReaderError) -> Fault {
        let status = match error {
            ReaderError::NotOpen { .. } | ReaderError::Opening { .. } => nigh_status::NIGH_NOT_OPEN,
            ReaderError::Busy { .. } => nigh_status::NIGH_BUSY,
            ReaderError::NoMemory { .. } => nigh_status::NIGH_NO_MEMORY,
            ReaderError::Damaged { .. } => nigh_status::NIGH_DAMAGED,
            ReaderError::Forked { .. } => nigh_status::NIGH_REFUSED,
            _ => nigh_status::NIGH_CANNOT_OPEN,
        };
        Fault::new(status, error.to_string())
    }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Fault {
        let status = match &error {
            CallError::Over { .. } => nigh_status::NIGH_CLOSED,
            CallError::NotAttached { .. } => nigh_status::NIGH_NO_SERVER,
            CallError::CantConnect { .. } | CallError::NotPermitted { .. } => {
                nigh_status::NIGH_CANNOT_CONNECT
            }
            CallError::Unknown { .. } => nigh_status::NIGH_UNKNOWN,
            CallError::Unanswered { .. } => nigh_status::NIGH_UNANSWERED,
            CallError::Unexpected { .. } => nigh_status::NIGH_UNEXPECTED,
            CallError::NoMemory { .. } => nigh_status::NIGH_NO_MEMORY,
            CallError::NotLocal { .. } => nigh_status::NIGH_NOT_LOCAL,
            CallError::KeyTooLong { .. }
            | CallError::ValueTooLong { .. }
            | CallError::TooManyWords { .. } => nigh_status::NIGH_TOO_LARGE,
            CallError::Refused { reply, .. } if says_too_long(reply.as_bytes()) => {
                nigh_status::NIGH_TOO_LARGE
            }
            CallError::TooNew { .. } | CallError::NotSynced { .. } => nigh_status::NIGH_BUSY,
            _ => nigh_status::NIGH_REFUSED,
        };
        // The options' names in C.
        let text = error.to_string().replace("ClientOptions::wait", "wait_ms");
        Fault::new(status, text.replace("ClientOptions::", ""))
    }
}

impl From<TooNew> for Fault {
    fn from(_: TooNew) -> Fault {
        let message = "too much has changed since the view began: return from its callback, which \
                       is called again";
        Fault::new(nigh_status::NIGH_BUSY, message)
    }
}

impl From<AddressError> for Fault {
    fn from(error: AddressError) -> Fault {
        Fault::invalid(error.to_string())
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// The status of a call. What it says of its error is kept for the thread.
pub(crate) fn answer(call: impl FnOnce() -> Result<nigh_status, Fault>) -> nigh_status {
    let fault = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(status)) => return status,
        Ok(Err(fault)) => fault,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("it doesn't say which");
            let status = nigh_status::NIGH_FAULT;
            Fault::new(status, format!("a fault of Nigh's own ({text}): please report it"))
        }
    };
    let mut message = fault.message.into_bytes();
    message.retain(|byte| *byte != 0);
    let message = CString::new(message).unwrap_or_default();
    // In a thread that ends, nobody asks any more.
    let _ = MESSAGE.try_with(|kept| kept.replace(message));
    fault.status
}

/// Hands the message of this thread's last error to `read`; it is empty if there was none.
pub(crate) fn with_message<R>(read: impl Fn(&CStr) -> R) -> R {
    let kept = MESSAGE.try_with(|kept| read(&kept.borrow()));
    kept.unwrap_or_else(|_| read(c""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        with_message(|message| message.to_str().expect("text").to_owned())
    }

    #[test]
    fn a_panic_is_a_status_and_its_text_is_told() {
        // Something breaks within a call; the caller is C, which knows no panics.
        assert_eq!(answer(|| panic!("no {}", "luck")), nigh_status::NIGH_FAULT);
        assert_eq!(message(), "a fault of Nigh's own (no luck): please report it");
        assert_eq!(answer(|| std::panic::panic_any(7)), nigh_status::NIGH_FAULT);
        assert!(message().contains("doesn't say"), "{}", message());
    }

    #[test]
    fn a_message_stays_until_the_threads_next_error() {
        assert_eq!(message(), "");
        let fails = |text: &'static str| move || Err(Fault::invalid(text));
        assert_eq!(answer(fails("one\0two")), nigh_status::NIGH_INVALID);
        assert_eq!(answer(|| Ok(nigh_status::NIGH_OK)), nigh_status::NIGH_OK);
        assert_eq!(message(), "onetwo");
        std::thread::spawn(move || {
            assert_eq!(message(), "", "another thread has its own");
            assert_eq!(answer(fails("other")), nigh_status::NIGH_INVALID);
        })
        .join()
        .expect("it ends well");
        assert_eq!(message(), "onetwo");
        assert_eq!(answer(fails("three")), nigh_status::NIGH_INVALID);
        assert_eq!(message(), "three");
    }
}
