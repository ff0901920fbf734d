//! The thread that runs functions: its V8, and the libraries that it has loaded.
//!
//! ```text
//! order ── load ──> V8 checks the source ── its owner's lock: put_library ─> V8 ── strong: disk
//!       └─ call ──> all owners' locks ── a turn: V8 runs it, commits its writes ── strong: the disk
//! ```
//!
//! 1. A library is in V8 and in the store, or in neither, also if the wait for the disk fails
//!    behind that. One that was kept but doesn't load any more is in the store alone.
//! 2. A call has the locks of all owners: what it reads doesn't change meanwhile, and writers wait.
//! 3. A call that V8 can't stop leaves its thread behind, and goes on on another one (`Fiber`). So
//!    journals, which belong to one thread at a time, are handed over before V8 is entered.
//!
//! The fiber `nigh-functions`.

use super::function_error::FunctionError;
use super::host::{CallRefusal, StoreOfCall};
use super::lend;
use super::whole_turn::PartTurn;
use crate::error::{DbError, WriteRefusal};
use crate::options::WriteOptions;
use crate::shared_db::SharedDb;
use nigh_js::{Call, Fiber, FunctionLimits, Library, Mapping, RunTurn, Runtime, Tenant};
use nigh_resp::decode::Replies;
use nigh_resp::frame::Frame;
use nigh_resp::limits::Limits;
use nigh_shm::JournalWriter;
use nigh_store::{Store, Turn};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// The partition whose owner has the libraries; calls without keys write there too.
const FIRST: usize = 0;
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
    /// The partitions', in order.
    journals: Vec<JournalWriter>,
    libraries: BTreeMap<String, Library>,
    broken: BTreeMap<String, String>,
}

/// What a call did in a turn.
struct Ran {
    reply: Vec<u8>,
    refusal: Option<CallRefusal>,
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
        let start = |error| FunctionError::Start { source: io::Error::other(error) };
        let call_ms = shared.function_limit_ms;
        let limits = FunctionLimits { call_ms, ..FunctionLimits::default() };
        let mut runtime = Runtime::on(fiber, limits).map_err(start)?;
        let arenas = shared.partitions.iter().map(|it| lend::mapping(it.reader.region()));
        let tenant = runtime.open_tenant(arenas.collect::<Vec<Mapping>>());
        let journals = shared.own_all()?.iter_mut().map(|it| it.owner().journal()).collect();
        let sources = shared.partitions[FIRST].owner.take()?.owner().turn(|store, turn| {
            let kept = store.libraries(turn).into_iter();
            kept.map(|(name, source)| (name.to_vec(), source.to_vec())).collect::<Vec<_>>()
        });
        let (libraries, broken) = (BTreeMap::new(), BTreeMap::new());
        let mut worker = Worker { runtime, tenant, shared, journals, libraries, broken };
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
        self.shared.commit_in(FIRST, &WriteOptions::eventual(), false, put)?;
        self.runtime.install(self.tenant, &library, source).map_err(refused)?;
        self.broken.remove(&name);
        self.libraries.insert(name.clone(), library);
        self.shared.wait_for_libraries(true)?;
        Ok(name)
    }

    fn unload(&mut self, name: &str) -> Result<bool, FunctionError> {
        let delete =
            |store: &mut Store, turn: &Turn<'_>| Ok(store.delete_library(name.as_bytes(), turn)?);
        let was_there = self.shared.commit_in(FIRST, &WriteOptions::eventual(), true, delete)?;
        self.runtime.remove(self.tenant, name);
        self.libraries.remove(name);
        self.broken.remove(name);
        self.shared.wait_for_libraries(was_there)?;
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
        let shared = Arc::clone(&self.shared);
        let home = keys.first().map_or(FIRST, |key| shared.number_of(key));
        let partition = u32::try_from(home).expect("at most 64");
        let mut call = Call { function, keys: &keys, args: &args, partition, ..Call::default() };
        call.resp3 = true;
        let functions = self.libraries.values().flat_map(|it| &it.functions);
        let found = functions.into_iter().find(|it| it.name.as_bytes() == function);
        let durable = found.is_some_and(|it| it.durable);
        let crosses = found.is_some_and(|it| it.allow_cross_slot_keys);
        // One that isn't there writes nothing either.
        let only_reads = found.is_none_or(|it| it.no_writes) && !durable;
        let options = if durable { WriteOptions::strong() } else { WriteOptions::new() };
        let written = if crosses { FIRST..shared.partitions.len() } else { home..home + 1 };
        let reply = match only_reads {
            true => shared.look_at_all(&mut |parts| self.run(&call, parts).reply)?,
            false => shared.commit_over_all(written, &options, &mut |parts| {
                let ran = self.run(&call, parts);
                match ran.refusal {
                    None => Ok(Ok(ran.reply)),
                    // Maybe not for long: then the call runs again.
                    Some(CallRefusal::Whole(error)) => Err(WriteRefusal::Write(error)),
                    Some(CallRefusal::Rest(error)) => {
                        Ok(Err(FunctionError::Partly { cause: DbError::of_write(error) }))
                    }
                }
            })?,
        };
        match Replies::new(Limits::replies()).decode(&reply).ok().flatten() {
            Some(Frame::Error(text) | Frame::BlobError(text)) => {
                Err(FunctionError::Call { cause: String::from_utf8_lossy(&text).into_owned() })
            }
            Some(reply) => Ok(reply),
            None => Err(FunctionError::Db(DbError::Stopped)),
        }
    }

    /// Runs a call in a turn of all owners.
    fn run(&mut self, call: &Call<'_>, parts: &mut [PartTurn<'_>]) -> Ran {
        self.journals.iter().for_each(JournalWriter::hand_over);
        let turn = parts[FIRST].turn;
        let run_turn = RunTurn {
            now_ms: turn.now_ms,
            random_seed: turn.random,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let mut host = StoreOfCall { parts, journals: &self.journals, refusal: None };
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
