//! What can be asked of a database's functions.
//!
//! Any thread.

use crate::db::Db;
use crate::functions::{FunctionError, FunctionLibrary};
use nigh_resp::frame::Frame;

impl Db {
    /// Loads a library of functions, in place of one of the same name, and returns its name. Its
    /// source is JavaScript as for `FUNCTION LOAD` (docs/functions.md). It stays with the database:
    /// the next open has it too, and it is as durable as a [`Db::put`].
    ///
    /// The first call of this kind starts the thread `nigh-functions`. Load only sources that you
    /// trust: V8 reads them in this process, while a server tries them in another one first.
    ///
    /// # Errors
    /// The source is no library, or one of its functions has the name of another library's; the
    /// message says where. Nothing has changed then. Or memory is full, or the log can't be
    /// written; or [`DbError::NotDurable`](crate::DbError::NotDurable).
    pub fn load(&self, source: impl AsRef<[u8]>) -> Result<String, FunctionError> {
        self.functions.load(&self.shared, source.as_ref())
    }

    /// Removes a library, as durably as a [`Db::delete`]. Whether it was there.
    ///
    /// # Errors
    /// The log can't be written; [`DbError::NotDurable`](crate::DbError::NotDurable).
    pub fn unload(&self, library: &str) -> Result<bool, FunctionError> {
        self.functions.unload(&self.shared, library)
    }

    /// All libraries, in the order of their names.
    ///
    /// # Errors
    /// The thread of the functions can't be started.
    pub fn libraries(&self) -> Result<Vec<FunctionLibrary>, FunctionError> {
        self.functions.list(&self.shared)
    }

    /// Calls `name(db, args, keys)`, and returns what it returns, as a reply of RESP3.
    ///
    /// It is all or nothing, and nobody sees its middle: it has the locks of the writers, so they
    /// wait while it runs, which is 50 ms of CPU time at most by default
    /// ([`Options::function_time_limit`](crate::Options::function_time_limit)). Reads go on. Of several
    /// [partitions](crate::Options::partitions) it reads all, and writes in that of its first key;
    /// with the flag `allow-cross-slot-keys` in all, all or nothing in each. Its writes are as
    /// durable as those of [`Db::put`]; with the flag `durable` they are on disk when this returns.
    /// Calls run one after the other, in one thread. A function mustn't wait for its caller.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = nigh::Db::open(dir.path().join("data"), &nigh::Options::new())?;
    /// db.load("#!js name=bank\nexport function pay(db, [n], [from, to]) {\n  \
    ///          db.incr(from, -Number(n));\n  return db.incr(to, Number(n));\n}\n")?;
    /// let reply = db.call("pay", &[b"ada", b"alan"], &[b"10"])?;
    /// assert_eq!(reply, nigh::Frame::Integer(10));
    /// assert_eq!(db.get(b"ada")?.as_deref(), Some(&b"-10"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such function, it threw or was stopped, or its writes were refused: then it has
    /// written nothing. So it is if the log is ill and the call, which is to be on disk, has only
    /// read what isn't: that is the log's error, also if it threw. Or [`FunctionError::Partly`], or
    /// [`DbError::NotDurable`](crate::DbError::NotDurable).
    pub fn call(&self, name: &str, keys: &[&[u8]], args: &[&[u8]]) -> Result<Frame, FunctionError> {
        self.functions.call(&self.shared, name, keys, args)
    }
}
