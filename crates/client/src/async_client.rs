//! A client for tasks: many of them share one, on any runtime.
//!
//! ```text
//! task ── read ── memory ── sure? ────────────────────────────────────> answer, at once
//!                              └ no
//! task ── request ── queue ── the client's thread: all that wait, in one pipeline ──> reply
//! ```
//!
//! 1. Requests are sent in the order in which tasks have put them into the queue, each once.
//! 2. The queue is bounded: a task that finds it full waits for room.
//! 3. What a future has put into the queue happens also when the future is dropped.
//!
//! Any task, any thread. The one thread that the client has ends behind its last handle.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use nigh_resp::frame::Frame;
use nigh_shm::{ForeignValues, ForkMark};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use crate::address::Address;
use crate::call_error::{CallError, check_words, is_queued, printable};
use crate::client::{ATTACHES_MOST, Client, check_key, new_fork_mark, owned_value_of};
use crate::client_memory::ClientMemory;
use crate::client_options::ClientOptions;
use crate::client_reads::{copied, life_of_reply};
use crate::client_writes::{BrokenPipeline, millis};
use crate::local_side::KeyLife;
use crate::read_commands::reads_only;
use crate::remote::no_words;

/// Jobs that may wait.
const WAITING_MOST: usize = 4096;
/// Most requests of one pipeline.
const TOGETHER_MOST: usize = 1024;

/// What a request is told that came into a transaction which another task had left open.
const LEFT_OPEN: &str = "a MULTI was left open, and is given up with all that came into it: send \
                         what belongs together within one `with`";

/// A client that many tasks share; cloned, it is the same client.
///
/// Reads come from memory without a wait where [`Client`]'s do. All else goes through the client's
/// own thread, which sends what waits for it as one pipeline.
///
/// ```no_run
/// # async fn example() -> Result<(), nigh_client::CallError> {
/// let client = nigh_client::AsyncClient::connect("unix:/run/nigh/nigh.sock").await?;
/// client.set(b"greeting", b"hello").await?;
/// assert_eq!(client.get(b"greeting").await?.as_deref(), Some(&b"hello"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncClient {
    jobs: Sender<Job>,
    shared: Arc<Shared>,
}

/// What tasks and the thread share.
struct Shared {
    address: Address,
    memory: Mutex<Option<Arc<ClientMemory>>>,
    fork_mark: ForkMark,
    /// That of the client.
    thread: OnceLock<ThreadId>,
}

type Work = Box<dyn FnOnce(&mut Client, &Shared) + Send>;

/// What a task wants of the thread.
enum Job {
    Request(Request),
    Run(Work),
}

struct Request {
    words: Vec<Vec<u8>>,
    reply: oneshot::Sender<Result<Frame, NoReply>>,
}

/// Why a request has no reply.
struct NoReply {
    error: CallError,
    /// Whether the reply is more than this process takes, and would be so again.
    is_too_much: bool,
}

impl From<CallError> for NoReply {
    fn from(error: CallError) -> NoReply {
        NoReply { error, is_too_much: false }
    }
}

impl AsyncClient {
    /// Connects to an address, as [`Client::connect`] does.
    ///
    /// # Errors
    /// As there.
    pub async fn connect(address: &str) -> Result<AsyncClient, CallError> {
        let address = Client::address_of(address)?;
        AsyncClient::connect_with(&address, ClientOptions::default()).await
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Client::connect_with`].
    pub async fn connect_with(
        address: &Address,
        options: ClientOptions,
    ) -> Result<AsyncClient, CallError> {
        let (jobs, waiting) = channel(WAITING_MOST);
        let shared = Arc::new(Shared {
            address: address.clone(),
            memory: Mutex::new(None),
            fork_mark: new_fork_mark()?,
            thread: OnceLock::new(),
        });
        let (said, is_connected) = oneshot::channel();
        let of_thread = Arc::clone(&shared);
        let work = move || match Client::connect_with(&of_thread.address, options) {
            Ok(client) => {
                of_thread.note(&client);
                // Nobody waits for it any more if this fails; then there are no jobs either.
                let _ = said.send(Ok(()));
                serve(client, waiting, &of_thread);
            }
            Err(error) => drop(said.send(Err(error))),
        };
        let thread = std::thread::Builder::new().name("nigh-client".to_owned()).spawn(work);
        let thread = thread.map_err(|error| CallError::CantConnect {
            cause: format!("no thread for the client of {address}: {error}"),
        })?;
        let _ = shared.thread.set(thread.thread().id());
        is_connected.await.expect("the thread says how it went")?;
        Ok(AsyncClient { jobs, shared })
    }

    /// Whether reads come from the server's memory now.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.shared.memory().is_some_and(|memory| !memory.is_over())
    }

    /// [`Client::get`].
    ///
    /// # Errors
    /// As there.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
        check_key(key)?;
        let mut value = Vec::new();
        if let Some(is_there) = self.look(|memory| memory.get_into(key, &mut value)) {
            return Ok(is_there.then_some(value));
        }
        self.ask(&[b"GET", key], owned_value_of).await
    }

    /// [`Client::exists`].
    ///
    /// # Errors
    /// As there.
    pub async fn exists(&self, key: &[u8]) -> Result<bool, CallError> {
        check_key(key)?;
        match self.look(|memory| memory.exists(key)) {
            Some(is_there) => Ok(is_there),
            None => self.ask(&[b"EXISTS", key], |reply| Some(reply.integer()? > 0)).await,
        }
    }

    /// [`Client::ttl`].
    ///
    /// # Errors
    /// As there.
    pub async fn ttl(&self, key: &[u8]) -> Result<Option<KeyLife>, CallError> {
        check_key(key)?;
        match self.look(|memory| memory.ttl(key)) {
            Some(life) => Ok(life),
            None => self.ask(&[b"PTTL", key], |reply| life_of_reply(&reply)).await,
        }
    }

    /// [`Client::multi_get`].
    ///
    /// # Errors
    /// As there.
    pub async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, CallError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut values = ForeignValues::new();
        if self.look(|memory| memory.multi_get_into(keys, &mut values)).is_some() {
            let copied = |key| values.get(key).map(|value| copied(b"MGET", value)).transpose();
            return (0..keys.len()).map(copied).collect();
        }
        let of_reply = |reply: Frame| match reply {
            Frame::Array(found) if found.len() == keys.len() => {
                found.into_iter().map(owned_value_of).collect()
            }
            _ => None,
        };
        self.ask(&[&[&b"MGET"[..]], keys].concat(), of_reply).await
    }

    /// [`Client::set`].
    ///
    /// # Errors
    /// As there.
    pub async fn set(&self, key: &[u8], value: &[u8]) -> Result<(), CallError> {
        check_key(key)?;
        self.done(&[b"SET", key, value]).await.map(drop)
    }

    /// [`Client::set_for`].
    ///
    /// # Errors
    /// As there.
    pub async fn set_for(&self, key: &[u8], value: &[u8], life: Duration) -> Result<(), CallError> {
        check_key(key)?;
        self.done(&[b"SET", key, value, b"PX", millis(life).as_bytes()]).await.map(drop)
    }

    /// [`Client::del`].
    ///
    /// # Errors
    /// As there.
    pub async fn del(&self, keys: &[&[u8]]) -> Result<u64, CallError> {
        if keys.is_empty() {
            return Ok(0);
        }
        keys.iter().try_for_each(|key| check_key(key))?;
        self.number(&[&[&b"DEL"[..]], keys].concat()).await.map(i64::unsigned_abs)
    }

    /// [`Client::incr`].
    ///
    /// # Errors
    /// As there.
    pub async fn incr(&self, key: &[u8], by: i64) -> Result<i64, CallError> {
        check_key(key)?;
        self.number(&[b"INCRBY", key, by.to_string().as_bytes()]).await
    }

    /// [`Client::expire`].
    ///
    /// # Errors
    /// As there.
    pub async fn expire(&self, key: &[u8], life: Duration) -> Result<bool, CallError> {
        check_key(key)?;
        Ok(self.number(&[b"PEXPIRE", key, millis(life).as_bytes()]).await? > 0)
    }

    /// [`Client::call`]. Other tasks' requests go by the same connection, before and behind it:
    /// what sets the connection's state (MULTI, WATCH, CLIENT REPLY) belongs into
    /// [`AsyncClient::with`].
    ///
    /// # Errors
    /// As there.
    pub async fn call(&self, request: &[&[u8]]) -> Result<Frame, CallError> {
        if request.is_empty() {
            return Ok(no_words());
        }
        self.reply_to(request).await.map_err(|lost| lost.error)
    }

    /// Sends a request, which has words, and waits for its reply.
    async fn reply_to(&self, request: &[&[u8]]) -> Result<Frame, NoReply> {
        check_words(request)?;
        let words = request.iter().map(|word| copied(request[0], word));
        let words = words.collect::<Result<_, CallError>>()?;
        let (reply, comes) = oneshot::channel();
        self.put(Job::Request(Request { words, reply })).await?;
        comes.await.expect("the thread answers each request")
    }

    /// Does something with the client itself, in its thread: views, scans, transactions, functions.
    /// Nothing of other tasks comes in between, and they wait meanwhile. A panic in it is this
    /// future's; the client attaches anew behind it. A transaction that it leaves open is given up
    /// as soon as another task's request comes into it, which fails.
    ///
    /// ```no_run
    /// # async fn example(client: nigh_client::AsyncClient) -> Result<(), nigh_client::CallError> {
    /// let address = client
    ///     .with(|client| client.view(|view| match view.get(b"user:of:session")? {
    ///         Some(user) => view.get(&user),
    ///         None => Ok(None),
    ///     }))
    ///     .await??;
    /// # drop(address);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`CallError::Forked`]; [`CallError::WouldWait`] in the client's own thread: within `with` of
    /// the same client.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Client) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (result, comes) = oneshot::channel();
        let run = move |client: &mut Client, shared: &Shared| {
            let done = catch_unwind(AssertUnwindSafe(|| work(client)));
            if done.is_err() {
                client.leave("what was done with the client has panicked".to_owned());
            }
            shared.note(client);
            drop(result.send(done));
        };
        self.put(Job::Run(Box::new(run))).await?;
        match comes.await.expect("the thread does each job") {
            Ok(result) => Ok(result),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Reads from memory; `None` if the server is to be asked.
    fn look<T>(&self, read: impl FnOnce(&ClientMemory) -> Option<T>) -> Option<T> {
        if self.shared.fork_mark.is_in_child() {
            return None;
        }
        read(&*self.shared.memory()?)
    }

    /// Asks the server; again if the reply is lost, unless it is too much for this process. Only
    /// for what changes nothing.
    async fn ask<T>(
        &self,
        request: &[&[u8]],
        of_reply: impl FnOnce(Frame) -> Option<T>,
    ) -> Result<T, CallError> {
        let (address, mut lost) = (&self.shared.address, String::new());
        for _ in 0..ATTACHES_MOST {
            match self.reply_to(request).await {
                Ok(reply) => {
                    let answer = of_reply(CallError::if_refused(address, request[0], reply)?);
                    return answer.ok_or_else(|| CallError::unexpected(address, request[0]));
                }
                Err(NoReply { error: CallError::Unanswered { cause, .. }, is_too_much: false }) => {
                    lost = cause
                }
                Err(NoReply { error, .. }) => return Err(error),
            }
        }
        let (address, command) = (address.to_string(), printable(request[0]));
        Err(CallError::Unanswered { address, command, cause: lost })
    }

    /// Sends a request whose error reply is an error.
    async fn done(&self, request: &[&[u8]]) -> Result<Frame, CallError> {
        let reply = self.call(request).await?;
        CallError::if_refused(&self.shared.address, request[0], reply)
    }

    async fn number(&self, request: &[&[u8]]) -> Result<i64, CallError> {
        let number = self.done(request).await?.integer();
        number.ok_or_else(|| CallError::unexpected(&self.shared.address, request[0]))
    }

    async fn put(&self, job: Job) -> Result<(), CallError> {
        if self.shared.fork_mark.is_in_child() {
            return Err(CallError::Forked { address: self.shared.address.to_string() });
        }
        if self.shared.thread.get() == Some(&std::thread::current().id()) {
            return Err(CallError::WouldWait);
        }
        let put = self.jobs.send(job).await;
        assert!(put.is_ok(), "the thread serves as long as there are handles");
        Ok(())
    }
}

impl Shared {
    fn memory(&self) -> Option<Arc<ClientMemory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells the tasks which memory is the client's now.
    fn note(&self, client: &Client) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = memory.as_ref().map(|memory| memory.link_number());
        if noted != Some(client.link_number()) {
            *memory = client.memory().map(Arc::new);
        }
    }
}

/// Does what tasks want until there is no handle any more.
fn serve(mut client: Client, mut jobs: Receiver<Job>, shared: &Shared) {
    while let Some(first) = jobs.blocking_recv() {
        let mut requests = Vec::new();
        let mut next = Some(first);
        while let Some(job) = next {
            match job {
                Job::Request(request) => requests.push(request),
                Job::Run(run) => {
                    send(&mut client, &mut requests, shared);
                    // What nobody waits for any more may panic when it is dropped.
                    let _ = catch_unwind(AssertUnwindSafe(|| run(&mut client, shared)));
                }
            }
            if requests.len() == TOGETHER_MOST {
                break;
            }
            next = jobs.try_recv().ok();
        }
        send(&mut client, &mut requests, shared);
    }
}

/// Why a request has no reply that was sent.
fn lost(command: &[u8], address: String, cause: String) -> CallError {
    let (reads, command) = (reads_only(command), printable(command));
    match reads {
        true => CallError::Unanswered { address, command, cause },
        false => CallError::Unknown { address, command, cause },
    }
}

/// Sends requests as one pipeline, and hands their replies out.
fn send(client: &mut Client, requests: &mut Vec<Request>, shared: &Shared) {
    if requests.is_empty() {
        return;
    }
    let mut replies = Vec::with_capacity(requests.len());
    let words = requests.iter().map(|request| &request.words);
    // `while_waiting` is the caller's, and may panic: the thread goes on for the other tasks.
    let sent = catch_unwind(AssertUnwindSafe(|| {
        client.pipeline_until(words, |reply| replies.push(reply.without_attributes()))
    }));
    let sent = sent.unwrap_or_else(|_| {
        let cause = "ConnectionOptions::while_waiting has panicked".to_owned();
        client.leave(cause.clone());
        let (address, command) = (client.address().to_string(), "a pipeline".to_owned());
        let error = CallError::Unknown { address, command, cause };
        Err(BrokenPipeline { error, is_too_much: false })
    });
    if replies.iter().any(is_queued) {
        // Somebody has left a transaction open. Nothing that has come into it is done.
        client.leave("a transaction was left open".to_owned());
    }
    // Before the replies: with one in hand, a task reads the memory of the server that gave it.
    shared.note(client);
    let came = replies.len();
    let mut replies = replies.into_iter();
    for (at, Request { words, reply: to }) in requests.drain(..).enumerate() {
        let answer = match (replies.next(), &sent) {
            (Some(reply), _) if is_queued(&reply) => Err(NoReply::from(CallError::Refused {
                address: client.address().to_string(),
                command: printable(&words[0]),
                reply: LEFT_OPEN.to_owned(),
            })),
            (Some(reply), _) => Ok(reply),
            (None, Err(BrokenPipeline { error, is_too_much })) => {
                let error = match error {
                    CallError::Unknown { address, cause, .. } => {
                        lost(&words[0], address.clone(), cause.clone())
                    }
                    error => error.clone(),
                };
                // Memory that a later one lacks may be that of the replies before it.
                Err(NoReply { error, is_too_much: *is_too_much && at == 0 && came == 0 })
            }
            (None, Ok(())) => unreachable!("a pipeline has as many replies as requests"),
        };
        // A caller that has dropped the future doesn't wait for it.
        let _ = to.send(answer);
    }
}
