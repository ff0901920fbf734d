//! How a call fails: an `Error` of JavaScript with a `code`.
//!
//! 1. A message names the database or the server, says what happened, and what to do.
//! 2. A panic ends here.
//!
//! Any thread: plain data.

use napi::{Error, Status};
use nigh::{DbError, OpenError, PlaceError, ReaderError};
use nigh_client::CallError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// In the library's messages an option's name follows these words.
const BEFORE_NAME: &str = "the option ";

/// The code of an error for lack of memory.
const NO_MEMORY: &str = "NIGH_NO_MEMORY";

/// The code of an error for lack of a server.
const NOT_ATTACHED: &str = "NIGH_NOT_ATTACHED";

/// The `code` of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code(&'static str);

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        self.0
    }
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub struct Fault {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl Fault {
    fn new(code: &'static str, message: String) -> Fault {
        Fault { code: Code(code), message }
    }

    /// The database at this path is closed.
    pub(crate) fn closed(path: &str) -> Fault {
        Fault::new("NIGH_CLOSED", format!("{path}: the database is closed: open it again"))
    }

    /// A snapshot, watch or reader of the database at this path is closed.
    pub(crate) fn ended(path: &str, what: &str) -> Fault {
        Fault::new("NIGH_CLOSED", format!("{path}: the {what} is closed: begin another"))
    }

    /// A call on the database at this path failed.
    pub(crate) fn of_call(path: &str, error: &DbError) -> Fault {
        let code = match error {
            DbError::KeyTooLong { .. }
            | DbError::ValueTooLong { .. }
            | DbError::BatchTooLarge { .. } => "NIGH_TOO_LARGE",
            DbError::Full => "NIGH_FULL",
            DbError::NoMemory { .. } => NO_MEMORY,
            DbError::NotANumber | DbError::Overflow => "NIGH_NOT_A_NUMBER",
            DbError::Held | DbError::Late => "NIGH_BUSY",
            DbError::NotDurable { .. } => "NIGH_NOT_DURABLE",
            DbError::LogFull { .. } => "NIGH_LOG_FULL",
            DbError::LogBroken { .. } => "NIGH_LOG_BROKEN",
            DbError::TooManyThreads { .. }
            | DbError::TooManySnapshots { .. }
            | DbError::TooManyWatches { .. } => "NIGH_TOO_MANY",
            DbError::SnapshotTooOld { .. } => "NIGH_SNAPSHOT_TOO_OLD",
            DbError::ChangesGone { .. } => "NIGH_CHANGES_GONE",
            DbError::PlaceAhead { .. }
            | DbError::PlacePartitions { .. }
            | DbError::PlaceOfOther => "NIGH_INVALID",
            DbError::Closed => "NIGH_CLOSED",
            DbError::Stopped => "NIGH_FAULT",
            _ => "NIGH_REFUSED",
        };
        Fault::new(code, format!("{path}: {}", own_names(&error.to_string())))
    }

    /// A client's call failed.
    pub(crate) fn of_client(error: &CallError) -> Fault {
        let code = match error {
            CallError::NotAttached { .. } => NOT_ATTACHED,
            CallError::CantConnect { .. } | CallError::NotPermitted { .. } => "NIGH_CANNOT_CONNECT",
            CallError::Unknown { .. } => "NIGH_UNKNOWN",
            CallError::Unanswered { .. } => "NIGH_UNANSWERED",
            CallError::KeyTooLong { .. }
            | CallError::ValueTooLong { .. }
            | CallError::TooManyWords { .. } => "NIGH_TOO_LARGE",
            CallError::NoMemory { .. } => NO_MEMORY,
            CallError::NotLocal { .. } => "NIGH_NOT_LOCAL",
            CallError::TooNew { .. } => "NIGH_TOO_NEW",
            CallError::NotSynced { .. } => "NIGH_NOT_DURABLE",
            CallError::Refused { .. } => "NIGH_REFUSED",
            _ => "NIGH_FAULT",
        };
        // The text names an option as it is called in Rust.
        let message = error.to_string().replace("ClientOptions::wait", "waitMs");
        Fault::new(code, message.replace("ClientOptions::reads_unsynced", "readsUnsynced"))
    }

    /// The system gives no memory for a copy of so many bytes.
    pub(crate) fn no_memory(bytes: usize) -> Fault {
        let message = format!(
            "the system gives no memory for a copy of {bytes} bytes: free some, or raise this \
             process's limit"
        );
        Fault::new(NO_MEMORY, message)
    }

    /// Whether memory was lacking.
    pub(crate) fn is_no_memory(&self) -> bool {
        self.code == Code(NO_MEMORY)
    }

    /// Whether there was no server, and nothing was sent.
    pub(crate) fn is_not_attached(&self) -> bool {
        self.code == Code(NOT_ATTACHED)
    }

    /// The client of the server at this address is closed.
    pub(crate) fn client_closed(address: &str) -> Fault {
        Fault::new("NIGH_CLOSED", format!("{address}: the client is closed: connect again"))
    }

    /// By this reply, a key or a value is longer than one can be.
    pub(crate) fn too_large(reply: &[u8]) -> Fault {
        Fault::new("NIGH_TOO_LARGE", String::from_utf8_lossy(reply).into_owned())
    }

    /// What JavaScript gave can't be.
    pub(crate) fn invalid(message: String) -> Fault {
        Fault::new("NIGH_INVALID", message)
    }

    /// A number that JavaScript's numbers don't hold.
    pub(crate) fn unsafe_integer(number: i64) -> Fault {
        let message = format!("the reply {number} is no safe number: read the key as text, by get");
        Fault::new("NIGH_UNSAFE_INTEGER", message)
    }

    /// Something that can't be.
    pub(crate) fn own(what: &str) -> Fault {
        Fault::new("NIGH_FAULT", format!("a fault of Nigh's own ({what}): please report it"))
    }

    /// The library tells an event that isn't known here.
    pub(crate) fn unknown_event(event: &str) -> Fault {
        Fault::new("NIGH_FAULT", format!("the event {event} isn't known: please report it"))
    }

    /// Node.js refuses what it is given.
    pub(crate) fn of_node(error: &Error) -> Fault {
        Fault::new(NO_MEMORY, format!("Node.js takes no result: {}", error.reason))
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        let code = match error {
            OpenError::InUse { .. } | OpenError::MemoryInUse { .. } => "NIGH_IN_USE",
            OpenError::Damaged { .. } => "NIGH_DAMAGED",
            OpenError::Option { .. } | OpenError::KeepsPrivate => "NIGH_INVALID",
            _ => "NIGH_CANNOT_OPEN",
        };
        Fault::new(code, own_names(&error.to_string()))
    }
}

impl From<PlaceError> for Fault {
    fn from(error: PlaceError) -> Fault {
        Fault::invalid(error.to_string())
    }
}

impl From<ReaderError> for Fault {
    fn from(error: ReaderError) -> Fault {
        let code = match error {
            ReaderError::NotOpen { .. } | ReaderError::Opening { .. } => "NIGH_NOT_OPEN",
            ReaderError::Busy { .. } => "NIGH_BUSY",
            ReaderError::NoMemory { .. } => NO_MEMORY,
            ReaderError::Damaged { .. } => "NIGH_DAMAGED",
            _ => "NIGH_CANNOT_OPEN",
        };
        Fault::new(code, own_names(&error.to_string()))
    }
}

/// A message of the library's, with the options' names as they are in JavaScript.
fn own_names(message: &str) -> String {
    let mut parts = message.split(BEFORE_NAME);
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        told.push_str(BEFORE_NAME);
        let is_of_name = |letter: char| letter == '_' || letter.is_ascii_lowercase();
        let end = part.find(|letter| !is_of_name(letter)).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let mut words = name.split('_');
        told.push_str(words.next().unwrap_or_default());
        for word in words {
            let (first, others) = word.split_at(word.len().min(1));
            told.push_str(&first.to_ascii_uppercase());
            told.push_str(others);
        }
        told.push_str(rest);
    }
    told
}

impl From<Fault> for Error<Code> {
    fn from(fault: Fault) -> Error<Code> {
        Error::new(fault.code, fault.message)
    }
}

/// What a call gives. A panic within it is a fault.
pub(crate) fn guarded<R>(call: impl FnOnce() -> Result<R, Fault>) -> Result<R, Fault> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("it doesn't say which");
        Err(Fault::own(text))
    })
}

/// The same, as Node.js throws it.
pub(crate) fn answer<R>(call: impl FnOnce() -> Result<R, Fault>) -> napi::Result<R, Code> {
    Ok(guarded(call)?)
}

/// A result that Node.js has made, or refused.
pub(crate) fn made<R>(result: Result<R, Error<Status>>) -> Result<R, Fault> {
    result.map_err(|error| Fault::of_node(&error))
}
