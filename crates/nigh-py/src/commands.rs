//! The commands that a client and a pipeline have, named and shaped as in redis-py.
//!
//! ```text
//! client.set(…)    ── words ──> the server ── its reply, as an object
//! pipeline.set(…)  ── words ──> kept: the pipeline
//!                      └ keys are watched, and no multi() yet: as of a client
//! ```
//!
//! 1. A command is here once: both classes inherit it.
//! 2. Reads of a client that memory can tell are read there; a lost reply to another read is asked
//!    for again. What may change something is sent once.
//!
//! Any thread that has the interpreter's lock.

use crate::arguments::{Word, instant, span, words};
use crate::command_words::{Expiry, MILLISECOND, SECOND, one_or_many, refuse, with_keys};
use crate::errors;
use crate::gathering::Gathering;
use crate::open_client::OpenClient;
use crate::replies;
use crate::request::Request;
use nigh_client::KeyLife;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyTuple};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What both classes are.
#[pyclass(frozen, subclass, module = "nigh")]
pub(crate) struct Commands {
    open: Arc<OpenClient>,
    /// Of a pipeline; `None` for a client.
    gathering: Option<Mutex<Gathering>>,
}

/// By which a command is sent at once.
enum Now<'a> {
    Own(&'a OpenClient),
    Watcher(Arc<OpenClient>),
}

impl Deref for Now<'_> {
    type Target = OpenClient;

    #[inline]
    fn deref(&self) -> &OpenClient {
        match self {
            Now::Own(open) => open,
            Now::Watcher(open) => open,
        }
    }
}

type PyReply<'py> = PyResult<Bound<'py, PyAny>>;
type This<'py> = Bound<'py, Commands>;

impl Commands {
    pub(crate) fn of_client(open: Arc<OpenClient>) -> Commands {
        Commands { open, gathering: None }
    }

    pub(crate) fn of_pipeline(open: Arc<OpenClient>) -> Commands {
        Commands { open, gathering: Some(Mutex::default()) }
    }

    pub(crate) fn open(&self) -> &Arc<OpenClient> {
        &self.open
    }

    /// The state of a pipeline; `None` of a client.
    pub(crate) fn gathering(&self) -> Option<MutexGuard<'_, Gathering>> {
        let gathering = self.gathering.as_ref()?;
        Some(gathering.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// By which a command is sent now; `None` if it is kept for later. A connection that watches is
    /// used as long as the client is open.
    #[inline]
    fn now(&self) -> PyResult<Option<Now<'_>>> {
        let Some(gathering) = self.gathering() else { return Ok(Some(Now::Own(&self.open))) };
        let Some(watcher) = gathering.at_once() else { return Ok(None) };
        self.open.check()?;
        Ok(Some(Now::Watcher(watcher)))
    }

    /// Sends a command once; or keeps it for later.
    fn send<'py>(this: &This<'py>, words: &[&[u8]]) -> PyReply<'py> {
        Commands::run(this, words, |open| open.request(this.py(), words))
    }

    /// Sends a command that changes nothing; or keeps it for later.
    fn ask<'py>(this: &This<'py>, words: &[&[u8]]) -> PyReply<'py> {
        Commands::run(this, words, |open| open.ask(this.py(), words))
    }

    fn run<'py>(
        this: &This<'py>,
        words: &[&[u8]],
        call: impl FnOnce(&OpenClient) -> PyResult<nigh_client::Frame>,
    ) -> PyReply<'py> {
        if let Some(open) = this.get().now()? {
            let reply = call(&open)?;
            return replies::of_command(this.py(), open.address(), words[0], &reply);
        }
        if let Some(mut gathering) = this.get().gathering() {
            let request = Request::of(words).map_err(|error| errors::of_client(&error))?;
            gathering.requests.push(request);
        }
        Ok(this.clone().into_any())
    }

    /// A command with keys.
    fn of_keys<'py>(this: &This<'py>, command: &[u8], keys: &[Word<'_>]) -> PyReply<'py> {
        Commands::send(this, &with_keys(command, keys))
    }

    /// A command that gives a key an expiry.
    fn set_expiry<'py>(
        this: &This<'py>,
        command: &[u8],
        name: &Word<'_>,
        when: &str,
        flags: [bool; 4],
    ) -> PyReply<'py> {
        let mut words = vec![command, name.get(), when.as_bytes()];
        let names = [&b"NX"[..], b"XX", b"GT", b"LT"];
        words.extend(names.iter().zip(flags).filter(|(_, given)| *given).map(|(name, _)| *name));
        Commands::send(this, &words)
    }

    /// How long a key stays, in units of so many milliseconds, as TTL and PTTL say it.
    fn life<'py>(this: &This<'py>, command: &[u8], name: &Word<'_>, unit_ms: u64) -> PyReply<'py> {
        let Some(open) = this.get().now()? else {
            return Commands::ask(this, &[command, name.get()]);
        };
        let key = name.get();
        let life = match open.read(this.py(), |client| client.ttl(key))? {
            None => -2,
            Some(KeyLife::Forever) => -1,
            // The nearest whole number, as the server has it.
            Some(KeyLife::Left(left)) => {
                let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                i64::try_from(ms.saturating_add(unit_ms / 2) / unit_ms).unwrap_or(i64::MAX)
            }
        };
        life.into_bound_py_any(this.py())
    }
}

#[pymethods]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
impl Commands {
    /// The value of a key, or `None`.
    fn get<'py>(slf: &This<'py>, name: Word<'py>) -> PyReply<'py> {
        let Some(open) = slf.get().now()? else {
            return Commands::ask(slf, &[b"GET", name.get()]);
        };
        open.get(slf.py(), name.get())?.into_bound_py_any(slf.py())
    }

    /// The values of several keys, `None` where there is none; those of a partition at one moment.
    #[pyo3(signature = (keys, *args))]
    fn mget<'py>(
        slf: &This<'py>,
        keys: &Bound<'py, PyAny>,
        args: &Bound<'py, PyTuple>,
    ) -> PyReply<'py> {
        let keys = one_or_many(keys, args)?;
        let Some(open) = slf.get().now()? else {
            return Commands::ask(slf, &with_keys(b"MGET", &keys));
        };
        let keys: Vec<&[u8]> = keys.iter().map(Word::get).collect();
        open.multi_get(slf.py(), &keys)?.into_bound_py_any(slf.py())
    }

    /// Gives a key a value, and an expiry, else none. `nx`: only if it isn't there; `xx`: only if
    /// it is; `None` if not. `get`: the old value comes back.
    #[pyo3(signature = (
        name, value, ex=None, px=None, nx=false, xx=false, keepttl=false, get=false, exat=None,
        pxat=None
    ))]
    fn set<'py>(
        slf: &This<'py>,
        name: Word<'py>,
        value: Word<'py>,
        ex: Option<Bound<'py, PyAny>>,
        px: Option<Bound<'py, PyAny>>,
        nx: bool,
        xx: bool,
        keepttl: bool,
        get: bool,
        exat: Option<Bound<'py, PyAny>>,
        pxat: Option<Bound<'py, PyAny>>,
    ) -> PyReply<'py> {
        let (ex, px, exat, pxat) = (ex.as_ref(), px.as_ref(), exat.as_ref(), pxat.as_ref());
        let expiry = Expiry { ex, px, exat, pxat }.words()?;
        let mut words = vec![&b"SET"[..], name.get(), value.get()];
        for (unit, number) in &expiry {
            words.extend([*unit, number.as_bytes()]);
        }
        let flags = [(&b"NX"[..], nx), (b"XX", xx), (b"KEEPTTL", keepttl), (b"GET", get)];
        words.extend(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| *flag));
        Commands::send(slf, &words)
    }

    /// Gives several keys values, all at once.
    fn mset<'py>(slf: &This<'py>, mapping: &Bound<'py, PyMapping>) -> PyReply<'py> {
        let mut pairs = Vec::new();
        for pair in mapping.items()? {
            let (key, value) = pair.extract::<(Word<'_>, Word<'_>)>()?;
            pairs.extend([key, value]);
        }
        Commands::of_keys(slf, b"MSET", &pairs)
    }

    /// Gives a key a value if it isn't there. Whether it did.
    fn setnx<'py>(slf: &This<'py>, name: Word<'py>, value: Word<'py>) -> PyReply<'py> {
        Commands::send(slf, &[b"SETNX", name.get(), value.get()])
    }

    /// The value of a key, which gets another expiry, or none with `persist`.
    #[pyo3(signature = (name, ex=None, px=None, exat=None, pxat=None, persist=false))]
    fn getex<'py>(
        slf: &This<'py>,
        name: Word<'py>,
        ex: Option<Bound<'py, PyAny>>,
        px: Option<Bound<'py, PyAny>>,
        exat: Option<Bound<'py, PyAny>>,
        pxat: Option<Bound<'py, PyAny>>,
        persist: bool,
    ) -> PyReply<'py> {
        let (ex, px, exat, pxat) = (ex.as_ref(), px.as_ref(), exat.as_ref(), pxat.as_ref());
        let expiry = Expiry { ex, px, exat, pxat }.words()?;
        let mut words = vec![&b"GETEX"[..], name.get()];
        for (unit, number) in &expiry {
            words.extend([*unit, number.as_bytes()]);
        }
        words.extend(persist.then_some(&b"PERSIST"[..]));
        Commands::send(slf, &words)
    }

    /// The value of a key, which is deleted.
    fn getdel<'py>(slf: &This<'py>, name: Word<'py>) -> PyReply<'py> {
        Commands::send(slf, &[b"GETDEL", name.get()])
    }

    /// Adds to the end of a value. Its length then.
    fn append<'py>(slf: &This<'py>, key: Word<'py>, value: Word<'py>) -> PyReply<'py> {
        Commands::send(slf, &[b"APPEND", key.get(), value.get()])
    }

    /// The length of a value, 0 without one.
    fn strlen<'py>(slf: &This<'py>, name: Word<'py>) -> PyReply<'py> {
        Commands::ask(slf, &[b"STRLEN", name.get()])
    }

    /// The bytes of a value from `start` to `end`, which belongs to them.
    fn getrange<'py>(slf: &This<'py>, key: Word<'py>, start: i64, end: i64) -> PyReply<'py> {
        let (start, end) = (start.to_string(), end.to_string());
        Commands::ask(slf, &[b"GETRANGE", key.get(), start.as_bytes(), end.as_bytes()])
    }

    /// Writes over a value from `offset` on. Its length then.
    fn setrange<'py>(
        slf: &This<'py>,
        name: Word<'py>,
        offset: i64,
        value: Word<'py>,
    ) -> PyReply<'py> {
        let offset = offset.to_string();
        Commands::send(slf, &[b"SETRANGE", name.get(), offset.as_bytes(), value.get()])
    }

    /// Adds to the integer in a key, 0 without one. The sum.
    #[pyo3(signature = (name, amount=1))]
    fn incr<'py>(slf: &This<'py>, name: Word<'py>, amount: i64) -> PyReply<'py> {
        Commands::send(slf, &[b"INCRBY", name.get(), amount.to_string().as_bytes()])
    }

    /// As `incr`.
    #[pyo3(signature = (name, amount=1))]
    fn incrby<'py>(slf: &This<'py>, name: Word<'py>, amount: i64) -> PyReply<'py> {
        Commands::incr(slf, name, amount)
    }

    /// Takes from the integer in a key, 0 without one. What is left.
    #[pyo3(signature = (name, amount=1))]
    fn decr<'py>(slf: &This<'py>, name: Word<'py>, amount: i64) -> PyReply<'py> {
        Commands::send(slf, &[b"DECRBY", name.get(), amount.to_string().as_bytes()])
    }

    /// As `decr`.
    #[pyo3(signature = (name, amount=1))]
    fn decrby<'py>(slf: &This<'py>, name: Word<'py>, amount: i64) -> PyReply<'py> {
        Commands::decr(slf, name, amount)
    }

    /// Adds to the number in a key, 0 without one. The sum.
    fn incrbyfloat<'py>(slf: &This<'py>, name: Word<'py>, amount: Word<'py>) -> PyReply<'py> {
        Commands::send(slf, &[b"INCRBYFLOAT", name.get(), amount.get()])
    }

    /// Deletes keys. How many were there.
    #[pyo3(signature = (*names))]
    fn delete<'py>(slf: &This<'py>, names: &Bound<'py, PyTuple>) -> PyReply<'py> {
        Commands::of_keys(slf, b"DEL", &words(names)?)
    }

    /// As `delete`.
    #[pyo3(signature = (*names))]
    fn unlink<'py>(slf: &This<'py>, names: &Bound<'py, PyTuple>) -> PyReply<'py> {
        Commands::of_keys(slf, b"UNLINK", &words(names)?)
    }

    /// How many of the keys are there.
    #[pyo3(signature = (*names))]
    fn exists<'py>(slf: &This<'py>, names: &Bound<'py, PyTuple>) -> PyReply<'py> {
        let names = words(names)?;
        if let [name] = &names[..]
            && let Some(open) = slf.get().now()?
        {
            let key = name.get();
            let is_there = open.read(slf.py(), |client| client.exists(key))?;
            return i64::from(is_there).into_bound_py_any(slf.py());
        }
        Commands::ask(slf, &with_keys(b"EXISTS", &names))
    }

    /// Gives a key another name.
    fn rename<'py>(slf: &This<'py>, src: Word<'py>, dst: Word<'py>) -> PyReply<'py> {
        Commands::send(slf, &[b"RENAME", src.get(), dst.get()])
    }

    /// Gives a key an expiry in seconds, or by a timedelta. Whether it did.
    #[pyo3(signature = (name, time, nx=false, xx=false, gt=false, lt=false))]
    fn expire<'py>(
        slf: &This<'py>,
        name: Word<'py>,
        time: Bound<'py, PyAny>,
        nx: bool,
        xx: bool,
        gt: bool,
        lt: bool,
    ) -> PyReply<'py> {
        Commands::set_expiry(slf, b"EXPIRE", &name, &span(&time, SECOND)?, [nx, xx, gt, lt])
    }

    /// The same in milliseconds.
    #[pyo3(signature = (name, time, nx=false, xx=false, gt=false, lt=false))]
    fn pexpire<'py>(
        slf: &This<'py>,
        name: Word<'py>,
        time: Bound<'py, PyAny>,
        nx: bool,
        xx: bool,
        gt: bool,
        lt: bool,
    ) -> PyReply<'py> {
        Commands::set_expiry(slf, b"PEXPIRE", &name, &span(&time, MILLISECOND)?, [nx, xx, gt, lt])
    }

    /// The same at a Unix time in seconds, or at a datetime.
    #[pyo3(signature = (name, when, nx=false, xx=false, gt=false, lt=false))]
    fn expireat<'py>(
        slf: &This<'py>,
        name: Word<'py>,
        when: Bound<'py, PyAny>,
        nx: bool,
        xx: bool,
        gt: bool,
        lt: bool,
    ) -> PyReply<'py> {
        Commands::set_expiry(slf, b"EXPIREAT", &name, &instant(&when, SECOND)?, [nx, xx, gt, lt])
    }

    /// Takes a key's expiry away. Whether it had one.
    fn persist<'py>(slf: &This<'py>, name: Word<'py>) -> PyReply<'py> {
        Commands::send(slf, &[b"PERSIST", name.get()])
    }

    /// Seconds for which a key stays; -1 without an expiry, -2 without the key.
    fn ttl<'py>(slf: &This<'py>, name: Word<'py>) -> PyReply<'py> {
        Commands::life(slf, b"TTL", &name, 1000)
    }

    /// The same in milliseconds.
    fn pttl<'py>(slf: &This<'py>, name: Word<'py>) -> PyReply<'py> {
        Commands::life(slf, b"PTTL", &name, 1)
    }

    /// The number of keys.
    fn dbsize<'py>(slf: &This<'py>) -> PyReply<'py> {
        Commands::ask(slf, &[b"DBSIZE"])
    }

    /// Deletes all keys.
    fn flushall<'py>(slf: &This<'py>) -> PyReply<'py> {
        Commands::send(slf, &[b"FLUSHALL"])
    }

    /// Asks the server for a sign of life.
    fn ping<'py>(slf: &This<'py>) -> PyReply<'py> {
        Commands::ask(slf, &[b"PING"])
    }

    /// Calls a function: `numkeys` of the words are keys.
    #[pyo3(signature = (function, numkeys, *keys_and_args))]
    fn fcall<'py>(
        slf: &This<'py>,
        function: Word<'py>,
        numkeys: u32,
        keys_and_args: &Bound<'py, PyTuple>,
    ) -> PyReply<'py> {
        let (count, more) = (numkeys.to_string(), words(keys_and_args)?);
        let mut words = vec![&b"FCALL"[..], function.get(), count.as_bytes()];
        words.extend(more.iter().map(Word::get));
        Commands::send(slf, &words)
    }

    /// Calls a function that writes nothing.
    #[pyo3(signature = (function, numkeys, *keys_and_args))]
    fn fcall_ro<'py>(
        slf: &This<'py>,
        function: Word<'py>,
        numkeys: u32,
        keys_and_args: &Bound<'py, PyTuple>,
    ) -> PyReply<'py> {
        let (count, more) = (numkeys.to_string(), words(keys_and_args)?);
        let mut words = vec![&b"FCALL_RO"[..], function.get(), count.as_bytes()];
        words.extend(more.iter().map(Word::get));
        Commands::ask(slf, &words)
    }

    /// Sends any command, once. What would change the connection is refused.
    #[pyo3(signature = (*args))]
    fn execute_command<'py>(slf: &This<'py>, args: &Bound<'py, PyTuple>) -> PyReply<'py> {
        let given = words(args)?;
        // "CONFIG GET" is two words, as in redis-py.
        let (name, more) = given
            .split_first()
            .ok_or_else(|| PyValueError::new_err("no command is given: name one, as 'PING'"))?;
        let mut words: Vec<&[u8]> = name.get().split(|byte| *byte == b' ').collect();
        words.extend(more.iter().map(Word::get));
        refuse(&words)?;
        Commands::send(slf, &words)
    }
}
