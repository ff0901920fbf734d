//! Several tenants at the shards of one server, which this thread turns one after the other.

mod durable;
mod exchange;
mod floods;
mod journal;
mod kills;
mod libraries;
mod log_faults;
mod logged;
mod memory;
mod parts;
mod peers;
mod waits;

use crate::config::Config;
use crate::engine::rust_words::{RustWords, WordCounts};
use crate::folder::starts::Skips;
use crate::hop::mailbox::{DEFAULT_REQUEST_BYTES, MailSettings, mailboxes};
use crate::net::client::Client;
use crate::net::connection::{Connection, Stream};
use crate::net::pipeline::Pending;
use crate::state::State;
use crate::state::logs::Logs;
use crate::state::seat::Seat;
use crate::state::shared::Shared;
use crate::tenant::TenantId;
use crate::turn::work::Work;
use mio::{Poll, Token, Waker};
use nigh_resp::encode;
use nigh_shm::{Domain, Participant};
use nigh_store::{Keyspace, LogStatus, StoreOptions, Turn};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SHARDS: usize = 2;

struct Shard {
    work: Work,
    participant: Participant,
    /// What its engine had to do.
    counts: Arc<WordCounts>,
}

/// A server without threads.
struct Shards {
    shards: Vec<Shard>,
    now_ms: u64,
    /// The time of the turns, if that doesn't pass by itself.
    at: Option<Instant>,
    /// How far the clock of the turns is ahead: a turn whose time is still to come isn't over early
    /// on a slow machine.
    ahead: Duration,
    _polls: Vec<Poll>,
    _dir: tempfile::TempDir,
}

/// A client, and where its connection is.
struct Peer {
    stream: UnixStream,
    shard: usize,
    slot: usize,
    came: Vec<u8>,
}

impl Shards {
    /// Shards of tenants with so many partitions each.
    fn of(partitions: &[usize]) -> Shards {
        let mut config = Config::default();
        config.set("appendonly", "no").expect("a flag");
        Shards::logged(partitions, config, None)
    }

    /// The same with these settings, and with the logs that go with them.
    fn logged(partitions: &[usize], config: Config, logs: Option<Arc<[Arc<LogStatus>]>>) -> Shards {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let domain = Domain::new(SHARDS);
        let mut divided: Vec<Vec<Keyspace>> = (0..SHARDS).map(|_| Vec::new()).collect();
        for (number, partitions) in partitions.iter().enumerate() {
            let mut options = StoreOptions::new(dir.path().join(number.to_string()), 64 << 20);
            options.tenant = format!("t{number}");
            options.partitions = *partitions;
            let (keyspace, _) = Keyspace::open(&options, &domain).expect("a keyspace");
            let parts = divided.iter_mut().zip(keyspace.divide(SHARDS));
            parts.for_each(|(shard, part)| shard.push(part));
        }
        let polls: Vec<Poll> = (0..SHARDS).map(|_| Poll::new().expect("a poll")).collect();
        let waker = |poll: &Poll| Arc::new(Waker::new(poll.registry(), Token(0)).expect("a waker"));
        let wakers: Vec<_> = polls.iter().map(waker).collect();
        let seats = wakers.iter().map(|waker| Seat::new(Arc::clone(waker))).collect();
        let skips = Skips::open(dir.path()).expect("a folder");
        let shared = Shared::new(seats, config, 0, 100, String::new(), skips);
        let settings = MailSettings::for_shards(SHARDS, DEFAULT_REQUEST_BYTES);
        let parts = mailboxes(&settings, wakers).into_iter().zip(divided).enumerate();
        let shards = parts.map(|(number, (mailbox, keyspaces))| {
            let engine = Box::new(RustWords::beside(logs.as_deref()));
            let counts = Arc::clone(&engine.counts);
            let logs = Logs::of(logs.clone(), number, None);
            let state = State::new(keyspaces, Arc::clone(&shared), logs, number, vec![engine]);
            Shard { work: Work::new(state, mailbox), participant: domain.join(), counts }
        });
        let (shards, ahead) = (shards.collect(), Duration::from_secs(3600));
        Shards { shards, now_ms: 1_000, at: None, ahead, _polls: polls, _dir: dir }
    }

    fn connect(&mut self, shard: usize, tenant: TenantId) -> Peer {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        ours.set_nonblocking(true).expect("a socket takes it");
        theirs.set_nonblocking(true).expect("a socket takes it");
        let work = &mut self.shards[shard].work;
        let (id, now) = (work.state.shared.client_id(), Instant::now());
        let mut client = Client::new(id, String::new(), String::new(), now);
        client.tenant = tenant;
        let slot = work.slab.reserve();
        let stream = Stream::Unix(mio::net::UnixStream::from_std(theirs));
        work.slab.put(Box::new(Connection::new(slot, stream, client)));
        Peer { stream: ours, shard, slot, came: Vec::new() }
    }

    fn send(&mut self, peer: &mut Peer, commands: &[Vec<&[u8]>]) {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| encode::request(&mut bytes, words));
        peer.stream.write_all(&bytes).expect("a socket with room");
        let work = &mut self.shards[peer.shard].work;
        work.slab.get_mut(peer.slot).expect("it is there").pipe.input.readable = true;
        work.ready.queue(peer.slot);
    }

    /// A turn of each shard.
    fn turn(&mut self, is_tick: bool) {
        (0..self.shards.len()).for_each(|shard| self.turn_one(shard, is_tick));
    }

    /// A turn of one shard.
    fn turn_one(&mut self, shard: usize, is_tick: bool) {
        self.turn_after(shard, is_tick, |_| {});
    }

    /// The same; `happens` runs when the shard has looked at what others have changed.
    fn turn_after(&mut self, shard: usize, is_tick: bool, happens: impl FnOnce(&mut Work)) {
        let Shard { work, participant, .. } = &mut self.shards[shard];
        work.take_answers();
        {
            let pin = participant.pin();
            let turn = Turn { now_ms: self.now_ms, pin: &pin, random: 1 };
            let seat = &work.state.shared.seats[work.state.number];
            work.state.notes = seat.notes();
            work.state.catch_up(&turn);
            happens(work);
            let now = self.at.unwrap_or_else(Instant::now) + self.ahead;
            work.turn(&turn, now);
            work.mailbox.flush();
            work.state.tenants.maintain(&turn, is_tick);
            if work.state.logs.end_turn() {
                work.journal_moved = now;
            }
        }
        participant.quiescent();
    }

    /// Turns until a client has these replies.
    fn expect(&mut self, peer: &mut Peer, expected: &[u8], story: &str) {
        for _ in 0..1_000 {
            if peer.came.len() >= expected.len() {
                break;
            }
            self.turn(false);
            let _ = peer.stream.read_to_end(&mut peer.came); // it would block at the end
            // What a full socket didn't take is written when it has room.
            self.shards[peer.shard].work.ready.queue(peer.slot);
        }
        let text = |bytes: &[u8]| bytes[..bytes.len().min(2_000)].escape_ascii().to_string();
        assert_eq!(text(&peer.came), text(expected), "{story}");
        assert!(peer.came == *expected, "{story}");
        peer.came.clear();
    }
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::bulk(&mut out, bytes);
    out
}

#[test]
fn tenants_share_shards_but_no_key_and_no_function() {
    // Three tenants, of one partition and of several, have clients at both shards, which send all
    // at once: so a shard's messages, batches and windows hold commands of all of them. All use the
    // same names.
    let mut shards = Shards::of(&[1, 3, 2]);
    let source = b"#!words name=w\nput echo\n".as_slice();
    let mut loader = shards.connect(1, TenantId(2));
    shards.send(&mut loader, &[vec![b"FUNCTION", b"LOAD", source]]);
    shards.expect(&mut loader, b"$1\r\nw\r\n", "only the last tenant has functions");
    shards.turn(false);
    let mut clients: Vec<(TenantId, Peer)> = Vec::new();
    for tenant in [0, 1, 2].map(TenantId) {
        for shard in 0..SHARDS {
            clients.push((tenant, shards.connect(shard, tenant)));
        }
    }
    // Long values are written, or sent to the other shard, from where they lie.
    let value = |tenant: TenantId| vec![b'a' + u8::try_from(tenant.0).expect("few"); 20_000];
    for round in 0..20 {
        for (at, (tenant, client)) in clients.iter_mut().enumerate() {
            let (value, own) = (value(*tenant), format!("own {at}"));
            let (own, none) = (own.as_bytes(), format!("none {round}"));
            let commands: Vec<Vec<&[u8]>> = vec![
                vec![b"SET", b"long", &value],
                vec![b"GET", b"long"],
                vec![b"SET", own, &value[..5]],
                vec![b"INCR", b"n"],
                vec![b"MGET", own, none.as_bytes(), b"long"],
                vec![b"DEL", own, b"nothing", b"nothing else"],
                vec![b"FCALL", b"put", b"1", b"f", &value[..1]],
            ];
            shards.send(client, &commands);
        }
        for (at, (tenant, client)) in clients.iter_mut().enumerate() {
            let value = value(*tenant);
            let mut expected = b"+OK\r\n".to_vec();
            expected.extend(bulk(&value));
            expected.extend_from_slice(b"+OK\r\n:");
            // Both clients of the tenant count; which comes first is not said.
            let counted = |client: &Peer| {
                let after = expected.len();
                client.came.get(after..after + 2).map(|digits| digits.to_vec())
            };
            while counted(client).is_none() {
                shards.turn(false);
                let _ = client.stream.read_to_end(&mut client.came);
            }
            let after = expected.len();
            let digits = client.came[after..].iter().take_while(|byte| byte.is_ascii_digit());
            let number: Vec<u8> = digits.copied().collect();
            let count: usize = String::from_utf8_lossy(&number).parse().expect("a number");
            assert!((2 * round + 1..=2 * round + 2).contains(&count), "{count} in round {round}");
            expected.extend(number);
            expected.extend_from_slice(b"\r\n*3\r\n");
            expected.extend([bulk(&value[..5]), b"$-1\r\n".to_vec(), bulk(&value)].concat());
            expected.extend_from_slice(b":1\r\n");
            expected.extend_from_slice(match tenant {
                TenantId(2) => b"+put\r\n",
                _ => b"-ERR Function not found\r\n",
            });
            shards.expect(client, &expected, &format!("client {at} of {tenant:?}, round {round}"));
        }
    }
    // Each tenant has what its own clients have left.
    let keys = |shards: &Shards, tenant: u32| -> u64 {
        let part = |shard: &Shard| shard.work.state.tenants[TenantId(tenant)].keyspace.stats().keys;
        shards.shards.iter().map(part).sum()
    };
    assert_eq!([0, 1, 2].map(|tenant| keys(&shards, tenant)), [2, 2, 3]);
}

#[test]
fn a_tenant_is_told_of_its_own_clients_and_slow_commands() {
    // All commands count as slow. Clients of two tenants send some, at the owner of the keys and at
    // the other shard, functions too.
    let mut config = Config::default();
    config.set("appendonly", "no").expect("a flag");
    config.set("slowlog-log-slower-than", "0").expect("a number");
    let mut shards = Shards::logged(&[1, 1], config, None);
    let source = b"#!words name=w\nput\n".as_slice();
    let [mut one, mut far, mut other] =
        [(0, 1), (1, 1), (0, 0)].map(|(shard, tenant)| shards.connect(shard, TenantId(tenant)));
    let call: Vec<&[u8]> = vec![b"FCALL", b"put", b"1", b"f", b"v"];
    shards.send(&mut one, &[vec![b"FUNCTION", b"LOAD", source]]);
    shards.expect(&mut one, b"$1\r\nw\r\n", "it is loaded");
    shards.turn(false);
    shards.send(&mut far, &[call.clone(), vec![b"KEYS", b"*"], call]);
    shards.expect(&mut far, b"+put\r\n*1\r\n$1\r\nf\r\n+put\r\n", "it writes");
    let count = [vec![b"SLOWLOG".as_slice(), b"LEN"]];
    shards.send(&mut other, &count);
    shards.expect(&mut other, b":0\r\n", "nothing was its own");
    shards.send(&mut other, &[vec![b"SLOWLOG", b"RESET"], count[0].clone()]);
    shards.expect(&mut other, b"+OK\r\n:1\r\n", "the RESET alone");
    shards.send(&mut one, &count);
    shards.expect(&mut one, b":4\r\n", "those of both clients");
    // As if the other shard had told, which has a turn of its own for that.
    let listed = |shards: &mut Shards, client: &mut Peer| {
        shards.send(client, &[vec![b"CLIENT", b"LIST"]]);
        let work = &mut shards.shards[client.shard].work;
        work.slab.get_mut(client.slot).expect("it is there").pipe.pending = Pending::Refreshed;
        shards.turn(false);
        let _ = client.stream.read_to_end(&mut client.came);
        String::from_utf8_lossy(&std::mem::take(&mut client.came)).matches("id=").count()
    };
    assert_eq!((listed(&mut shards, &mut one), listed(&mut shards, &mut other)), (1, 1));
}

#[test]
fn keys_of_a_tenant_that_rests_expire() {
    // A tenant's only client has gone. Another one's goes on; the shards tick.
    let mut shards = Shards::of(&[2, 2]);
    let mut client = shards.connect(0, TenantId(1));
    let names: Vec<String> = (0..50).map(|number| format!("k{number}")).collect();
    let sets: Vec<Vec<&[u8]>> = names
        .iter()
        .map(|name| vec![b"SET" as &[u8], name.as_bytes(), b"v", b"PX", b"50"])
        .collect();
    shards.send(&mut client, &sets);
    shards.expect(&mut client, &b"+OK\r\n".repeat(50), "they are set");
    let mut other = shards.connect(1, TenantId(0));
    let keys = |shards: &Shards| -> u64 {
        let part = |shard: &Shard| shard.work.state.tenants[TenantId(1)].keyspace.stats().keys;
        shards.shards.iter().map(part).sum()
    };
    shards.turn(true);
    shards.now_ms += 100;
    for _ in 0..10 {
        shards.send(&mut other, &[vec![b"PING"]]);
        shards.expect(&mut other, b"+PONG\r\n", "it answers");
    }
    assert_eq!(keys(&shards), 50, "nobody has looked at them");
    let ticks = (1..100).find(|_| {
        shards.now_ms += 100;
        shards.turn(true);
        keys(&shards) == 0
    });
    assert!(ticks.is_some_and(|ticks| ticks < 10), "{ticks:?}");
}
