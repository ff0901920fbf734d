//! The runtime's requests to the server while it runs functions. It calls a [`Host`] on its
//! own thread, from inside of [`Runtime::run`](crate::Runtime::run).

/// One entry of a write set, in the order in which the function wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallWrite<'a> {
    /// Set `key` to `value`.
    Put {
        /// The key.
        key: &'a [u8],
        /// The whole new value.
        value: &'a [u8],
        /// Unix ms, or 0 for none.
        expiry_ms: u64,
    },
    /// Delete `key`, which may be absent.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Change the expiry of an existing `key`, keep its value.
    Expire {
        /// The key.
        key: &'a [u8],
        /// Unix ms, or 0 for none.
        expiry_ms: u64,
    },
}

/// How important a line of a function's log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `console.debug`
    Debug,
    /// `console.log`, `console.info`
    Info,
    /// `console.warn`, the stack of an uncaught error, and the number of dropped lines
    Warn,
    /// `console.error`
    Error,
}

/// The server's side of a call. A panic in it does not cross into V8: the call gets an error reply.
pub trait Host {
    /// Commits the write set of one call, all or nothing. Each key occurs once. The host may
    /// publish in the arena, and grow it.
    ///
    /// # Errors
    /// The whole error reply with its code, for example `OOM command not allowed …`; nothing was
    /// written.
    fn commit(&mut self, writes: &[CallWrite<'_>]) -> Result<(), String>;

    /// Visits about `count` keys that begin with `prefix`, from `cursor` on (0: the start); returns
    /// the next cursor, 0 at the end. Expired keys are left out.
    fn scan(&mut self, prefix: &[u8], cursor: u64, count: u32, found: &mut dyn FnMut(&[u8]))
    -> u64;

    /// Writes a line to the log: at most 100 a second from a library's console, and one stack a
    /// second from a function.
    fn log(&mut self, level: Level, library: &str, function: &str, text: &str) {
        match level {
            Level::Debug => tracing::debug!(target: "function", library, function, "{text}"),
            Level::Info => tracing::info!(target: "function", library, function, "{text}"),
            Level::Warn => tracing::warn!(target: "function", library, function, "{text}"),
            Level::Error => tracing::error!(target: "function", library, function, "{text}"),
        }
    }
}

/// Notes which libraries start, so that the next process knows of a start that ended this one.
pub trait Starts {
    /// The runtime compiles the library next, and runs its top level.
    fn begins(&mut self, library: &str, source: &[u8]);
    /// The start has ended, well or not.
    fn ended(&mut self, library: &str);
}
