//! The FCALLs of a turn, run as one batch: the engine is entered once for all of them.
//!
//! 1. Replies are given out in the order of the calls, an error that needs no function in its
//!    place.
//! 2. The time of a batch is shared by its calls: what one of them took, only the engine
//!    knows.
//! 3. A batch ends when its replies exceed `output-buffer-pause`, or a turn's time is over: calls
//!    that haven't run are the next batch's, and those of a client that has so much to read are as
//!    if they had not come yet.
//!
//! Belongs to the shard's thread.

use crate::engine::{Call, UNSTABLE};
use crate::handlers::store_host::StoreHost;
use crate::handlers::{functions, route};
use crate::hop::later::Join;
use crate::hop::message::{Manner, MessageKind};
use crate::net::output::Mark;
use crate::net::party::Party;
use crate::net::pipeline::Pending;
use crate::net::queued::ReplyMode;
use crate::state::tenants::LocalTenant;
use crate::state::{State, libraries};
use crate::turn::call_queue::WaitingCall;
use crate::turn::dispatch;
use crate::turn::exchange::sender;
use crate::turn::run::log_party_if_slow;
use crate::turn::work::{CALLS_AT_ONCE, Work};
use nigh_resp::Protocol;
use nigh_store::{BUSY, JOURNAL_FULL, Keyspace, Scarce, Store, Turn};
use std::ops::Range;
use std::time::Instant;

/// Keys of a call whose records are prefetched: a batch's must fit the second-level cache.
const PREFETCHED_KEYS: usize = 4;

/// What the calls of a batch answered.
struct Answers {
    /// The replies of all calls that ran, one after the other.
    bytes: Vec<u8>,
    /// For each FCALL that ran where its reply is in `bytes`, or the error that it has without a
    /// function.
    places: Vec<Result<Range<usize>, &'static str>>,
    /// Time that each call is charged.
    each_ns: u64,
    /// Some found that memory is still to come back for their writes, and have changed nothing.
    is_busy: bool,
    /// Partitions of which the last call couldn't be told, a bit for each.
    untold: u64,
    /// Writes of the only call for partitions of other shards.
    mail: Vec<(usize, Vec<u8>)>,
}

impl Answers {
    /// For what a call may wait, by its reply.
    fn scarce(&self, place: &Range<usize>) -> Option<Scarce> {
        let text = self.bytes[place.clone()].get(1..).unwrap_or_default();
        let texts = [(BUSY, Scarce::Memory), (JOURNAL_FULL, Scarce::Journal)];
        let told = texts.into_iter().find(|(told, _)| text.starts_with(told.as_bytes()));
        told.filter(|_| self.is_busy).map(|(_, scarce)| scarce)
    }
}

impl Work {
    /// Runs all FCALLs that wait, and gives each connection its replies. One batch does for all
    /// that follow each other and are for one tenant and one engine, but for those that may write
    /// to several partitions: each of them is a batch of its own, to tell whose writes they are.
    pub(crate) fn run_functions(&mut self, turn: &Turn<'_>) {
        let mut queue = std::mem::take(&mut self.calls);
        while let Some(first) = queue.calls().first() {
            // One runs in any case, so that functions get on.
            let most = if self.budget.is_used() { 1 } else { 2 * CALLS_AT_ONCE };
            let most = self.calls_at_once.get(most);
            let first = (first.tenant, self.engine(first));
            let is_alike = |call: &&WaitingCall| {
                (call.tenant, self.engine(call)) == first && !self.crosses(call)
            };
            let alike = queue.calls().iter().take(most).take_while(is_alike);
            let together = alike.count().max(1);
            let ran = self.run_batch(&queue.calls()[..together], turn);
            queue.remove_first(ran);
            queue.retain(|call| self.is_still_to_run(call));
        }
        self.state.ran_functions = true;
        self.calls = queue;
    }

    /// Whether nothing before a call waits; else it comes again, behind that. The first of a client
    /// that has enough to read waits until that is read; the first of each client waits for the
    /// next turn if this one has done enough.
    fn is_still_to_run(&mut self, call: &WaitingCall) -> bool {
        let has_enough = self.has_enough(call.party);
        let pipe = &mut *self.active[call.party];
        pipe.is_put_off |= self.budget.is_used();
        if has_enough || self.budget.is_used() {
            pipe.input.next = pipe.input.next.min(call.index);
            pipe.stopped = true;
        }
        pipe.input.next > call.index
    }

    fn function(&self, call: &WaitingCall) -> &[u8] {
        self.active[call.party].input.word(call.index, 1)
    }

    fn engine(&self, call: &WaitingCall) -> usize {
        match self.state.engines.len() {
            1 => 0,
            _ => self.state.tenants[call.tenant].libraries.traits(self.function(call)).engine,
        }
    }

    /// Whether a call may write to several partitions.
    pub(crate) fn crosses(&self, call: &WaitingCall) -> bool {
        let tenant = &self.state.tenants[call.tenant];
        tenant.keyspace.partitions() > 1 && tenant.libraries.traits(self.function(call)).crosses
    }

    /// Runs calls as one batch; how many of them have run: one at least.
    fn run_batch(&mut self, calls: &[WaitingCall], turn: &Turn<'_>) -> usize {
        let mut answers = self.call_all(calls, turn);
        let calls = &calls[..answers.places.len()];
        for (call, place) in calls.iter().zip(&answers.places) {
            let pipe = &mut *self.active[call.party];
            let mark = pipe.out.mark();
            if pipe.input.next <= call.index {
                // One before it waits, so this one ran too early: it runs again. It has written
                // nothing, as it only reads, or found the store busy.
                continue;
            }
            if answers.untold != 0
                && place.as_ref().is_ok_and(|place| answers.bytes[place.clone()] == *UNSTABLE)
                && self.runs_again(call, answers.untold)
            {
                continue;
            }
            if let Some(scarce) = place.as_ref().ok().and_then(|place| answers.scarce(place))
                && self.waits_on(call.party, scarce)
            {
                self.active[call.party].input.next = call.index;
                continue;
            }
            let pipe = &mut *self.active[call.party];
            match place {
                Ok(range) => {
                    pipe.out.bytes().extend_from_slice(&answers.bytes[range.clone()]);
                }
                Err(text) => nigh_resp::encode::error(pipe.out.bytes(), text),
            }
            self.bound_reply(call.party, mark, !answers.mail.is_empty());
            let party = &mut self.active[call.party];
            self.budget.count_reply(party.out.since(mark));
            party.pending = Pending::Nothing;
            count_call(&mut self.state, party, *call, &mark, turn, answers.each_ns);
            let pipe = &mut **party;
            let silent = pipe.client.reply_mode != ReplyMode::On;
            dispatch::finish(&mut pipe.client, &mut pipe.out, mark);
            if self.is_durable_call(call.tenant, call.party, call.index) {
                self.insist(call.party);
            } else {
                self.note_look(call.party, call.index, call.row, turn);
            }
            if !answers.mail.is_empty() {
                self.send_writes(call.party, mark, std::mem::take(&mut answers.mail), silent);
            } else {
                self.defer(call.party, mark, turn);
            }
            self.active[call.party].answered();
        }
        calls.len()
    }

    /// Lets a call run again that couldn't be told what some partitions have: at the owner, if
    /// there is one partition; else here, while their owners stand still. It is the last of its
    /// batch. False in a server that stops.
    fn runs_again(&mut self, call: &WaitingCall, untold: u64) -> bool {
        if self.state.tenants[call.tenant].keyspace.partitions() > 1 {
            if !self.wait_for_still(call.party, call.tenant, untold) {
                return false;
            }
        } else {
            self.active[call.party].pending = Pending::Unstable(untold);
            self.state.stats.moved_calls += 1;
        }
        self.active[call.party].input.next = call.index;
        true
    }

    /// Sends the writes of a call for partitions of other shards. Its reply, since `mark`, waits
    /// until they are done.
    fn send_writes(&mut self, at: usize, mark: Mark, mail: Vec<(usize, Vec<u8>)>, silent: bool) {
        let connection = sender(&mut self.active, at);
        let reply = connection.pipe.out.cut_bytes(mark);
        let shards: Vec<usize> = mail.iter().map(|(shard, _)| *shard).collect();
        connection.later.expect_parts(Join::Ok, vec![reply], &shards);
        self.send_parts(at, mail, MessageKind::Writes, silent, true);
    }

    /// Enters the engine once for all calls, which are one tenant's and one engine's.
    fn call_all(&mut self, waiting: &[WaitingCall], turn: &Turn<'_>) -> Answers {
        let (tenant, engine) = (waiting[0].tenant, self.engine(&waiting[0]));
        let mut words: Vec<&[u8]> = Vec::new();
        let mut places = Vec::with_capacity(waiting.len());
        for call in waiting {
            let (input, first) = (&self.active[call.party].input, words.len());
            words.extend(input.batch.args(call.index).iter(input.bytes()));
            places.push(first..words.len());
        }
        let asked = waiting
            .iter()
            .zip(places)
            .map(|(call, place)| (self.active[call.party].manner(call.index), &words[place]));
        let AskedCalls { calls, touches, errors } = asked_of(&self.state.tenants[tenant], asked);
        prefetch_and_touch(&mut self.state.tenants[tenant].keyspace, &calls, &touches);
        let began = Instant::now();
        let mut bytes = Vec::new();
        let mut ranges = Vec::with_capacity(calls.len());
        let run_turn = functions::run_turn(&mut self.state, tenant, turn);
        let (keyspace, mail) = (&mut self.state.tenants[tenant].keyspace, Vec::new());
        // One call's writes are its client's. A shard that is asked asks no other.
        let is_clients = |call: &WaitingCall| self.active[call.party].peer().is_none();
        let sends = matches!(waiting, [call] if is_clients(call));
        let logs = &self.state.logs;
        logs.hand_over_journal();
        let mut host = StoreHost { tenant, keyspace, logs, turn, mail, sends, stays: None };
        let engine = &mut self.state.engines[engine];
        let ran = engine.run(tenant, &calls, run_turn, &mut host, &mut |_, reply| {
            ranges.push(bytes.len()..bytes.len() + reply.len());
            bytes.extend_from_slice(reply);
        });
        let StoreHost { keyspace, mail, .. } = host;
        let is_busy = keyspace.take_busy().is_some();
        // A function deletes nothing that it finds expired on a view.
        keyspace.take_lack();
        let ended = Instant::now();
        let time = ended.duration_since(began);
        self.budget.look(ended);
        self.calls_at_once.took(ran.calls, time, 2 * CALLS_AT_ONCE);
        let each_ns = time.as_nanos() / ran.calls.max(1) as u128;
        let mut ranges = ranges.into_iter();
        let place = |error: Option<&'static str>| match error {
            Some(text) => Some(Err(text)),
            None => ranges.next().map(Ok), // none of the first that hasn't run
        };
        Answers {
            places: errors.into_iter().map_while(place).collect(),
            bytes,
            is_busy,
            untold: ran.untold,
            mail,
            each_ns: u64::try_from(each_ns).unwrap_or(u64::MAX),
        }
    }
}

/// The calls of a batch as the engine gets them.
struct AskedCalls<'a> {
    /// Those that can run, and whether the keys of each count as used.
    calls: Vec<Call<'a>>,
    touches: Vec<bool>,
    /// For each FCALL the error that it has without a function.
    errors: Vec<Option<&'static str>>,
}

/// Reads the words of each call of a tenant.
fn asked_of<'a>(
    tenant: &LocalTenant,
    waiting: impl ExactSizeIterator<Item = (Manner, &'a [&'a [u8]])>,
) -> AskedCalls<'a> {
    let mut calls = Vec::with_capacity(waiting.len());
    let mut touches = Vec::with_capacity(waiting.len());
    let mut errors = Vec::with_capacity(waiting.len());
    for (Manner { protocol, keeps_ages }, args) in waiting {
        let key_end = libraries::key_end(&tenant.libraries, args);
        errors.push(key_end.err());
        if let Ok(key_end) = key_end {
            touches.push(!keeps_ages);
            let partition = route::of_call(tenant, args).unwrap_or(0);
            calls.push(Call {
                partition: u32::try_from(partition).unwrap_or(0),
                function: args[1],
                keys: &args[3..key_end],
                args: &args[key_end..],
                resp3: protocol == Protocol::Resp3,
                read_only: args[0].len() > "fcall".len(), // FCALL_RO
                ..Call::default()
            });
        }
    }
    AskedCalls { calls, touches, errors }
}

/// Asks for the records of the first declared keys, which the functions are about to read. All
/// declared keys count as used, but for those of calls that say otherwise.
fn prefetch_and_touch(keyspace: &mut Keyspace, calls: &[Call<'_>], touches: &[bool]) {
    let keys = calls.iter().zip(touches).flat_map(|(call, touches)| {
        call.keys.iter().take(PREFETCHED_KEYS).map(move |key| (key, *touches))
    });
    let places: Vec<(usize, u32, bool)> = keys
        .map(|(key, touches)| {
            let hash = keyspace.hash(key);
            (keyspace.partition(key, hash), hash, touches)
        })
        .collect();
    Store::prefetch(places.iter().map(|(partition, hash, _)| (keyspace.part(*partition), *hash)));
    let used = places.iter().filter(|(_, _, touches)| *touches);
    used.for_each(|(partition, hash, _)| keyspace.part_mut(*partition).touch(*hash));
    for (call, _) in calls.iter().zip(touches).filter(|(_, touches)| **touches) {
        keyspace.note_reads(call.keys.get(PREFETCHED_KEYS..).unwrap_or_default());
    }
}

/// Counts a function call, and logs it if it was slow.
fn count_call(
    state: &mut State,
    party: &mut Party,
    call: WaitingCall,
    mark: &Mark,
    turn: &Turn<'_>,
    elapsed_ns: u64,
) {
    party.client.last_row = Some(call.row);
    state.stats.count_calls(call.row, 1, elapsed_ns);
    state.stats.count_failure(call.row, party.out.error_at(*mark));
    log_party_if_slow(state, party, (call.row, call.tenant, call.index), elapsed_ns, turn.now_ms);
}
