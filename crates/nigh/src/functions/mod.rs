//! Functions of a database: JavaScript beside the data, as the server runs it.
//!
//! ```text
//! call, any thread ── order ──> nigh-functions ── all owners' locks ── V8 ── reply ──> the caller
//! ```
//!
//! 1. The thread starts with the first call, and ends with the database.
//!
//! Any thread.

mod function_error;
mod host;
mod lend;
mod whole_turn;
mod worker;

pub use function_error::FunctionError;
pub use worker::FunctionLibrary;

use crate::shared_db::SharedDb;
use nigh_js::{Fiber, FiberJoin};
use nigh_resp::frame::Frame;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use worker::{CallOrder, Order, serve};

/// The thread's stack for V8, bytes: several times what functions may take, since V8 compiles there
/// too.
const STACK_BYTES: usize = 16 << 20;

/// The thread of functions, when it runs.
#[derive(Default)]
pub(crate) struct Functions {
    running: Mutex<Option<RunningFunctions>>,
}

struct RunningFunctions {
    orders: Sender<Order>,
    join: FiberJoin,
}

impl Functions {
    /// Starts the thread if it doesn't run, has it do something, and waits.
    fn ask<R>(
        &self,
        shared: &Arc<SharedDb>,
        order: impl FnOnce(SyncSender<Result<R, FunctionError>>) -> Order,
    ) -> Result<R, FunctionError> {
        shared.partitions[0].owner.check_process()?;
        let orders = {
            let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if running.is_none() {
                *running = Some(start(shared)?);
            }
            running.as_ref().expect("it was started").orders.clone()
        };
        let (answer, answered) = sync_channel(1);
        orders.send(order(answer)).map_err(|_| FunctionError::Ended)?;
        answered.recv().map_err(|_| FunctionError::Ended)?
    }

    pub(crate) fn load(
        &self,
        shared: &Arc<SharedDb>,
        source: &[u8],
    ) -> Result<String, FunctionError> {
        self.ask(shared, |answer| Order::Load(source.to_vec(), answer))
    }

    pub(crate) fn unload(&self, shared: &Arc<SharedDb>, name: &str) -> Result<bool, FunctionError> {
        self.ask(shared, |answer| Order::Unload(name.to_owned(), answer))
    }

    pub(crate) fn list(
        &self,
        shared: &Arc<SharedDb>,
    ) -> Result<Vec<FunctionLibrary>, FunctionError> {
        self.ask(shared, Order::List)
    }

    pub(crate) fn call(
        &self,
        shared: &Arc<SharedDb>,
        function: &str,
        keys: &[&[u8]],
        args: &[&[u8]],
    ) -> Result<Frame, FunctionError> {
        let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
        let function = function.as_bytes().to_vec();
        let call = CallOrder { function, keys: owned(keys), args: owned(args) };
        self.ask(shared, |answer| Order::Call(call, answer))
    }

    /// Ends the thread. Nobody calls any more.
    pub(crate) fn end(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(RunningFunctions { orders, join }) = running {
            drop(orders);
            // A panic has told itself.
            let _ = join.join();
        }
    }
}

fn start(shared: &Arc<SharedDb>) -> Result<RunningFunctions, FunctionError> {
    let (orders, taken) = channel();
    let (ready, started) = sync_channel(1);
    let shared = Arc::clone(shared);
    let body = move |fiber| serve(fiber, shared, &taken, &ready);
    let join = Fiber::spawn("nigh-functions", STACK_BYTES, body)
        .map_err(|source| FunctionError::Start { source })?;
    started.recv().map_err(|_| FunctionError::Ended)??;
    Ok(RunningFunctions { orders, join })
}
