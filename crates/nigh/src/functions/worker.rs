//! The thread that runs functions: its V8, and the libraries that it has loaded.
//!
//! ```text
//! order ── load ──> V8 checks the source ── owner's lock: put_library ──> installed
//!       └─ call ──> owner's lock ── one turn: V8 runs it, commits its writes ── strong: the disk
//! ```
//!
//! 1. A library is in V8 and in the store, or in neither. One that was kept but doesn't load any
//!    more is in the store alone.
//! 2. There is one partition. A call has its owner's lock: what it reads doesn't change meanwhile,
//!    and writers wait.
//! 3. A call that V8 can't stop leaves its thread behind, and goes on on another one (`Fiber`). So
//!    the journal, which belongs to one thread at a time, is handed over before V8 is entered.
//!
//! The fiber `nigh-functions`.

use super::function_error::FunctionError;
use super::host::StoreOfCall;
use super::lend;
use crate::error::{DbError, WriteRefusal};
use crate::options::WriteOptions;
use crate::shared_db::SharedDb;
use nigh_js::{Call, Fiber, FunctionLimits, Library, RunTurn, Runtime, Tenant};
use nigh_resp::decode::Replies;
use nigh_resp::frame::Frame;
use nigh_resp::limits::Limits;
use nigh_shm::{JournalWriter, WriteError};
use nigh_store::{Store, Turn};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// The only partition.
const ONLY: usize = 0;
/// How often V8 gets time for what it has put off.
const TICK: Duration = Duration::from_millis(100);

/// A library of a database: see [`Db::libraries`](crate::Db::libraries).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionLibrary {
    /// Its name.
    pub name: String,
    /// The names of its functions, in order.
    pub functions: Vec<String>,
    /// Why it doesn't run, though it is kept: then it has no functions here.
    pub broken: Option<String>,
}

/// A call, as it goes to the thread.
pub(super) struct CallOrder {
    pub(super) function: Vec<u8>,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) args: Vec<Vec<u8>>,
}

/// What the thread is asked.
pub(super) enum Order {
    Load(Vec<u8>, SyncSender<Result<String, FunctionError>>),
    Unload(String, SyncSender<Result<bool, FunctionError>>),
    List(SyncSender<Result<Vec<FunctionLibrary>, FunctionError>>),
    Call(CallOrder, SyncSender<Result<Frame, FunctionError>>),
}

struct Worker {
    runtime: Runtime,
    tenant: Tenant,
    shared: Arc<SharedDb>,
    journal: JournalWriter,
    libraries: BTreeMap<String, Library>,
    broken: BTreeMap<String, String>,
}

/// What a call did in a turn.
#[derive(Default)]
struct Ran {
    reply: Vec<u8>,
    refusal: Option<WriteError>,
}

/// Serves orders until nobody can send any.
pub(super) fn serve(
    fiber: Fiber,
    shared: Arc<SharedDb>,
    orders: &Receiver<Order>,
    started: &SyncSender<Result<(), FunctionError>>,
) {
    let mut worker = match Worker::start(fiber, shared) {
        Ok(worker) => worker,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(()));
    loop {
        // The caller may be gone when its answer is there.
        match orders.recv_timeout(TICK) {
            Ok(Order::Load(source, answer)) => _ = answer.send(worker.load(&source)),
            Ok(Order::Unload(name, answer)) => _ = answer.send(worker.unload(&name)),
            Ok(Order::List(answer)) => _ = answer.send(Ok(worker.list())),
            Ok(Order::Call(call, answer)) => _ = answer.send(worker.call(&call)),
            Err(RecvTimeoutError::Timeout) => worker.runtime.catch_up(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Worker {
    /// Starts V8, and the libraries that are kept.
    fn start(fiber: Fiber, shared: Arc<SharedDb>) -> Result<Worker, FunctionError> {
        let [partition] = &*shared.partitions else {
            return Err(FunctionError::Partitions { partitions: shared.partitions.len() });
        };
        let start = |error| FunctionError::Start { source: io::Error::other(error) };
        let mut runtime = Runtime::on(fiber, FunctionLimits::default()).map_err(start)?;
        let tenant = runtime.open_tenant(lend::mapping(partition.reader.region()));
        let journal = partition.owner.take()?.owner().journal();
        let sources = shared.look(ONLY, |store, turn| {
            let kept = store.libraries(turn).into_iter();
            kept.map(|(name, source)| (name.to_vec(), source.to_vec())).collect::<Vec<_>>()
        })?;
        let (libraries, broken) = (BTreeMap::new(), BTreeMap::new());
        let mut worker = Worker { runtime, tenant, shared, journal, libraries, broken };
        for (name, source) in sources {
            let loaded = worker.runtime.load_kept(tenant, &source);
            let installed = loaded.and_then(|library| {
                worker.runtime.install(tenant, &library, &source).map(|()| library)
            });
            let name = String::from_utf8_lossy(&name).into_owned();
            match installed {
                Ok(library) => _ = worker.libraries.insert(name, library),
                Err(error) => _ = worker.broken.insert(name, error.to_string()),
            }
        }
        Ok(worker)
    }

    fn load(&mut self, source: &[u8]) -> Result<String, FunctionError> {
        let refused =
            |error: nigh_js::LoadError| FunctionError::Library { cause: error.to_string() };
        let library = self.runtime.load(self.tenant, source).map_err(refused)?;
        let name = library.name.clone();
        let put = |store: &mut Store, turn: &Turn<'_>| {
            Ok(store.put_library(name.as_bytes(), source, turn)?)
        };
        self.shared.commit(b"", &WriteOptions::new(), false, put)?;
        self.runtime.install(self.tenant, &library, source).map_err(refused)?;
        self.broken.remove(&name);
        self.libraries.insert(name.clone(), library);
        Ok(name)
    }

    fn unload(&mut self, name: &str) -> Result<bool, FunctionError> {
        let delete =
            |store: &mut Store, turn: &Turn<'_>| Ok(store.delete_library(name.as_bytes(), turn)?);
        let was_there = self.shared.commit(b"", &WriteOptions::new(), true, delete)?;
        self.runtime.remove(self.tenant, name);
        self.libraries.remove(name);
        self.broken.remove(name);
        Ok(was_there)
    }

    fn list(&self) -> Vec<FunctionLibrary> {
        let runs = self.libraries.values().map(|library| FunctionLibrary {
            name: library.name.clone(),
            functions: library.functions.iter().map(|it| it.name.clone()).collect(),
            broken: None,
        });
        let broken = self.broken.iter().map(|(name, reason)| FunctionLibrary {
            name: name.clone(),
            functions: Vec::new(),
            broken: Some(reason.clone()),
        });
        let mut all: Vec<FunctionLibrary> = runs.chain(broken).collect();
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn call(&mut self, order: &CallOrder) -> Result<Frame, FunctionError> {
        let (keys, args) = (slices(&order.keys), slices(&order.args));
        let function = &order.function[..];
        let call = Call { function, keys: &keys, args: &args, resp3: true, ..Call::default() };
        let functions = self.libraries.values().flat_map(|it| &it.functions);
        let found = functions.into_iter().find(|it| it.name.as_bytes() == function);
        let durable = found.is_some_and(|it| it.durable);
        // One that isn't there writes nothing either.
        let only_reads = found.is_none_or(|it| it.no_writes) && !durable;
        let options = if durable { WriteOptions::strong() } else { WriteOptions::new() };
        let shared = Arc::clone(&self.shared);
        let ran = match only_reads {
            true => shared.look(ONLY, |store, turn| self.run(&call, store, turn))?,
            false => shared.commit(b"", &options, false, |store, turn| {
                let mut ran = self.run(&call, store, turn);
                match ran.refusal.take() {
                    // Maybe not for long: then the call runs again.
                    Some(error) => Err(WriteRefusal::Write(error)),
                    None => Ok(ran),
                }
            })?,
        };
        let reply = Replies::new(Limits::replies()).decode(&ran.reply);
        match reply.ok().flatten() {
            Some(Frame::Error(text) | Frame::BlobError(text)) => {
                Err(FunctionError::Call { cause: String::from_utf8_lossy(&text).into_owned() })
            }
            Some(reply) => Ok(reply),
            None => Err(FunctionError::Db(DbError::Stopped)),
        }
    }

    /// Runs a call in a turn.
    fn run(&mut self, call: &Call<'_>, store: &mut Store, turn: &Turn<'_>) -> Ran {
        self.journal.hand_over();
        let run_turn = RunTurn {
            now_ms: turn.now_ms,
            random_seed: turn.random,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let mut host = StoreOfCall { store, turn, journal: &self.journal, refusal: None };
        let mut reply = Vec::new();
        self.runtime.run(self.tenant, &[*call], run_turn, &mut host, &mut |_, bytes| {
            reply.extend_from_slice(bytes);
        });
        Ran { reply, refusal: host.refusal }
    }
}

fn slices(words: &[Vec<u8>]) -> Vec<&[u8]> {
    words.iter().map(Vec::as_slice).collect()
}
