//! Commands that go over several partitions by parts: MSET, DEL, UNLINK, DBSIZE, FLUSHALL, FLUSHDB;
//! and MGET, EXISTS and TOUCH, if this shard couldn't tell itself what other partitions had at a
//! moment.
//!
//! ```text
//! DEL a b c d ──> own partitions: here and now        :1 ┐
//!             ──> DEL a c   to the owner of theirs    :2 ┼─ joined (`later`) ──> :3
//!             ──> DEL d     to the owner of its       :0 ┘
//! ```
//!
//! 1. Each part is atomic, all of them together aren't: another client may see one before the
//!    other.
//! 2. The own parts come first: if memory is still to come for one, nothing is sent yet, and the
//!    command comes again. Those that are done stand on the connection with their replies, and
//!    aren't done again: what another client has written in between stays. They go when the command
//!    has its reply, also if that is a refusal. A flush does all its parts again.
//! 3. A read has one part for each owner, which applies it in one go: so it shows one moment of
//!    each partition, and is always answered.
//!
//! Belongs to the shard's thread.

use crate::commands::{self, Row, Run};
use crate::handlers::route::Target;
use crate::hop::later::{self, Join};
use crate::hop::message::MessageKind;
use crate::hop::message::commands::{self as codec, Known};
use crate::net::output::{Output, ReplyWriter};
use crate::net::pipeline::MayWait;
use crate::state::State;
use crate::state::tenants::LocalTenant;
use crate::tenant::TenantId;
use crate::turn::exchange::sender;
use crate::turn::run::log_if_slow;
use crate::turn::work::Work;
use nigh_resp::Protocol;
use nigh_store::{Keyspace, Op, Scarce, Turn};
use std::collections::BTreeMap;
use std::time::Instant;

impl Work {
    /// Does a command by parts; false if its connection has to wait, and nothing was sent.
    pub(crate) fn scatter(
        &mut self,
        at: usize,
        index: usize,
        row: Row,
        target: Target,
        silent: bool,
        turn: &Turn<'_>,
    ) -> bool {
        let Run::Data(op) = commands::of(row).run else { unreachable!("only data has partitions") };
        let is_brief = op != Op::MGet;
        if !self.has_allowance(at) {
            return false;
        }
        let began = Instant::now();
        let may_wait = self.may_wait(at);
        let connection = sender(&mut self.active, at);
        let keeps_ages = connection.pipe.client.no_touch;
        let tenant = connection.pipe.client.tenant;
        let (input, out) = (&connection.pipe.input, &mut connection.pipe.out);
        let args = input.words(index);
        let done = match target {
            Target::Split { step } => {
                let (own, others) = split(&self.state.tenants[tenant], tenant, row, &args, step);
                let done = &mut connection.done_parts;
                let keyspace = &mut self.state.tenants[tenant].keyspace;
                let ended = do_own(keyspace, out, op, &own, done, may_wait, turn);
                ended.map(|(in_vain, came)| (in_vain, (came, others)))
            }
            Target::Views => {
                let protocol = connection.pipe.client.protocol;
                self.state.tenants[tenant].keyspace.keep_ages(keeps_ages);
                let parts = read_by_owners(&mut self.state, tenant, protocol, row, op, &args, turn);
                self.state.tenants[tenant].keyspace.keep_ages(false);
                Ok((false, parts))
            }
            _ => to_owners(&mut self.state, tenant, out, row, op, &args, may_wait),
        };
        let (in_vain, (mut came, parts)) = match done {
            Ok(done) => done,
            Err(scarce) => {
                self.wait_for(at, scarce);
                return false;
            }
        };
        connection.pipe.waited_in_vain = in_vain;
        let error = came.iter().find_map(|reply| reply.strip_prefix(b"-"));
        self.state.stats.count_failure(row, error);
        if silent {
            came.iter_mut().for_each(Vec::clear);
        }
        let join = match op {
            Op::DbSize | Op::Del | Op::Unlink | Op::Exists | Op::Touch => Join::Sum,
            Op::MGet => Join::Values(givers(&self.state.tenants[tenant], &args)),
            _ => Join::Ok,
        };
        let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.state.stats.count_calls(row, 1, elapsed_ns);
        log_if_slow(&self.state, &args, row, elapsed_ns, turn.now_ms, &mut connection.pipe.client);
        let shards: Vec<usize> = parts.iter().map(|(shard, _)| *shard).collect();
        self.note_sent(at, index, row);
        let connection = sender(&mut self.active, at);
        connection.pipe.input.next = index + 1;
        connection.later.expect_parts(join, came, &shards);
        connection.later.write_complete(connection.pipe.out.bytes());
        let kind = MessageKind::Part(connection.pipe.client.run_manner());
        self.send_parts(at, parts, kind, silent, is_brief);
        true
    }
}

/// Replies of the own parts, and the others as messages with the shards that they go to.
type Parts = (Vec<Vec<u8>>, Vec<(usize, Vec<u8>)>);

/// The words of the parts, by partition; of reads, by owner.
type PartWords<'a> = BTreeMap<usize, Vec<&'a [u8]>>;

/// Cuts a command of several keys by partition: the own parts, and the others as messages.
fn split<'a>(
    of: &LocalTenant,
    tenant: TenantId,
    row: Row,
    args: &[&'a [u8]],
    step: usize,
) -> (PartWords<'a>, Vec<(usize, Vec<u8>)>) {
    let mut by_partition = PartWords::new();
    for belongs in args[1..].chunks(step) {
        let partition = of.keyspace.partition_of(belongs[0]);
        by_partition.entry(partition).or_insert_with(|| vec![args[0]]).extend(belongs);
    }
    let (own, others): (PartWords<'_>, PartWords<'_>) =
        by_partition.into_iter().partition(|(partition, _)| of.owns(*partition));
    let others = others
        .into_iter()
        .map(|(partition, args)| (of.keyspace.owner(partition), whole_message(tenant, row, &args)));
    (own, others.collect())
}

/// A command with other words than the client's.
fn whole_message(tenant: TenantId, row: Row, args: &[&[u8]]) -> Vec<u8> {
    codec::message(tenant, Known { row, key: None }, args.iter().copied())
}

/// Does the own parts that aren't done yet, in order; whether one has waited in vain, and the
/// replies of all. An error if one is to wait: that one has changed nothing, and those after it
/// haven't begun.
fn do_own(
    keyspace: &mut Keyspace,
    out: &mut Output,
    op: Op,
    own: &PartWords<'_>,
    done: &mut BTreeMap<usize, Vec<u8>>,
    may_wait: MayWait,
    turn: &Turn<'_>,
) -> Result<(bool, Vec<Vec<u8>>), Scarce> {
    let mut in_vain = false;
    for (partition, args) in own {
        if done.contains_key(partition) {
            continue;
        }
        let store = keyspace.part_mut(*partition);
        let reply = reply_of(out, |out| store.apply(op, args, turn, out));
        if let Some(scarce) = store.take_busy() {
            if may_wait.is_for(scarce) {
                return Err(scarce);
            }
            in_vain = true;
        }
        done.insert(*partition, reply);
    }
    Ok((in_vain, std::mem::take(done).into_values().collect()))
}

/// Reads the own keys, and asks the owners of the others for theirs. Each bounds its part.
fn read_by_owners(
    state: &mut State,
    tenant: TenantId,
    protocol: Protocol,
    row: Row,
    op: Op,
    args: &[&[u8]],
    turn: &Turn<'_>,
) -> Parts {
    let keyspace = &mut state.tenants[tenant].keyspace;
    let mut by_owner = PartWords::new();
    for key in &args[1..] {
        let owner = keyspace.owner(keyspace.partition_of(key));
        by_owner.entry(owner).or_insert_with(|| vec![args[0]]).push(key);
    }
    let mut came = Vec::new();
    if let Some(own) = by_owner.remove(&state.number) {
        let mut out = Output::default();
        out.tenant = tenant;
        let mark = out.mark();
        keyspace.apply_over_views(op, &own, turn, &mut ReplyWriter::new(&mut out, protocol));
        if out.since(mark) > state.hot.output_limit {
            out.refuse_since(mark, state.hot.output_limit); // it would be copied
        }
        out.settle_all(&state.tenants.readers(), turn.pin);
        came.push(std::mem::take(out.bytes()));
    }
    let message = |(owner, args): (usize, Vec<&[u8]>)| (owner, whole_message(tenant, row, &args));
    (came, by_owner.into_iter().map(message).collect())
}

/// For each key the shard that gives its value.
fn givers(of: &LocalTenant, args: &[&[u8]]) -> Box<[u8]> {
    let giver = |key: &&[u8]| match of.keyspace.partition_of(key) {
        own if of.owns(own) => later::HERE,
        other => later::narrow(of.keyspace.owner(other)),
    };
    args[1..].iter().map(giver).collect()
}

/// Does a command about all keys to the own partitions; whether it has waited in vain. An error if
/// it is to wait: it comes again as a whole.
fn to_owners(
    state: &mut State,
    tenant: TenantId,
    out: &mut Output,
    row: Row,
    op: Op,
    args: &[&[u8]],
    may_wait: MayWait,
) -> Result<(bool, Parts), Scarce> {
    let keyspace = &mut state.tenants[tenant].keyspace;
    let mut owners: Vec<usize> =
        (0..keyspace.partitions()).map(|partition| keyspace.owner(partition)).collect();
    owners.sort_unstable();
    owners.dedup();
    let mut came = Vec::new();
    if keyspace.owns_some() {
        came.push(reply_of(out, |out| keyspace.apply_to_owned(op, args, out)));
    }
    let busy = keyspace.take_busy();
    if let Some(scarce) = busy.filter(|scarce| may_wait.is_for(*scarce)) {
        return Err(scarce);
    }
    owners.retain(|owner| *owner != state.number);
    let message = whole_message(tenant, row, args);
    let others = owners.into_iter().map(|owner| (owner, message.clone())).collect();
    Ok((busy.is_some(), (came, others)))
}

/// The reply that `apply` writes. Those of commands done by parts have no values, and are the same
/// in all protocols.
fn reply_of(out: &mut Output, apply: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
    let mark = out.mark();
    apply(&mut ReplyWriter::new(out, Protocol::Resp2));
    out.cut_bytes(mark)
}
