//! Boundaries that two layers implement, each in its own language: commands in Rust, functions in
//! JavaScript. Both look at the same records with the same clock, from one table each.

use super::StoreHost;
use crate::engine::lend;
use crate::net::output::{Output, ReplyWriter};
use crate::state::logs::Logs;
use crate::tenant::TenantId;
use nigh_js::{Call, FunctionLimits, RunTurn, Runtime, Tenant};
use nigh_resp::Protocol;
use nigh_shm::{Domain, Participant, Pin};
use nigh_store::{KeyWrite, Keyspace, Op, StoreOptions, Turn};
use std::time::Duration;

/// What functions of the tests do; each answers as the command does that is named like it.
const SOURCE: &str = "#!js name=t\n\
    export const exists = (db, [k]) => db.exists(k) ? 1 : 0;\n\
    export const get = (db, [k]) => db.get(k)?.text();\n\
    export const pttl = (db, [k]) => { const t = db.ttl(k); return t === undefined ? -2 : t === Infinity ? -1 : t; };\n\
    export const keys = (db, [k]) => { let c = 0; const all = [];\n\
      do { const page = db.scan(k, c); all.push(...page.keys); c = page.cursor; } while (c !== 0); return all; };\n\
    export const get_number = (db, [k]) => db.get(Number(k))?.text();\n\
    export const exists_number = (db, [k]) => db.exists(Number(k)) ? 1 : 0;\n\
    export const set = (db, [k, v]) => { db.set(k, v); };\n\
    export const set_number = (db, [k, v]) => { db.set(Number(k), v); };\n\
    export const incr = (db, [k]) => db.incr(k);\n\
    export const pexpire = (db, [k, ms]) => db.expire(k, Number(ms)) ? 1 : 0;";

/// Both layers over one keyspace.
struct Layers {
    keyspace: Keyspace,
    runtime: Runtime,
    /// The thread's own, and one that takes the arenas for another thread's.
    tenants: [Tenant; 2],
    participant: Participant,
    out: Output,
    _dir: tempfile::TempDir,
}

impl Layers {
    fn new(partitions: usize) -> Layers {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let domain = Domain::new(2);
        let mut options = StoreOptions::new(dir.path(), 64 << 20);
        options.partitions = partitions;
        let (keyspace, _) = Keyspace::open(&options, &domain).expect("a keyspace");
        let limits = FunctionLimits { call_ms: 10_000, ..FunctionLimits::default() };
        let mut runtime = Runtime::new(limits).expect("V8");
        let mapping = |store: &nigh_store::Store| lend::mapping(store.data_region());
        let own: Vec<_> = keyspace.parts().iter().map(mapping).collect();
        let foreign: Vec<_> = keyspace.parts().iter().map(|s| mapping(s).foreign()).collect();
        let tenants = [own, foreign].map(|arenas| {
            let tenant = runtime.open_tenant(arenas);
            let library = runtime.load(tenant, SOURCE.as_bytes()).expect("a library");
            runtime.install(tenant, &library, SOURCE.as_bytes()).expect("its functions");
            tenant
        });
        let (participant, out) = (domain.join(), Output::default());
        Layers { keyspace, runtime, tenants, participant, out, _dir: dir }
    }

    /// The reply of the command's layer.
    fn command(&mut self, now_ms: u64, op: Op, args: &[&[u8]]) -> String {
        let pin = self.participant.pin();
        let turn = Turn { now_ms, pin: &pin, random: 1 };
        let mark = self.out.mark();
        let partition = args.get(1).map_or(0, |key| self.keyspace.partition_of(key));
        let store = self.keyspace.part_mut(partition);
        store.apply(op, args, &turn, &mut ReplyWriter::new(&mut self.out, Protocol::Resp2));
        self.keyspace.take_lack();
        let reader = |_, partition| self.keyspace.reader(partition);
        self.out.settle_all(&reader, &pin);
        String::from_utf8_lossy(&self.out.cut_bytes(mark)).into_owned()
    }

    /// The reply of the function's layer.
    fn function(&mut self, now_ms: u64, tenant: usize, name: &str, args: &[&[u8]]) -> String {
        let pin: Pin<'_> = self.participant.pin();
        let turn = Turn { now_ms, pin: &pin, random: 1 };
        self.keyspace.begin_turn(&turn);
        let partition = args.first().map_or(0, |key| self.keyspace.partition_of(key));
        let partition = u32::try_from(partition).expect("few");
        let call = Call { function: name.as_bytes(), args, partition, ..Call::default() };
        let mut host = StoreHost {
            tenant: TenantId::DEFAULT,
            keyspace: &mut self.keyspace,
            logs: &Logs::default(),
            turn: &turn,
            mail: Vec::new(),
            sends: false,
            stays: None,
        };
        let run_turn = RunTurn {
            now_ms,
            random_seed: 1,
            reply_bytes: usize::MAX,
            time: Duration::MAX,
            still: 0,
        };
        let mut reply = String::new();
        let tenant = self.tenants[tenant];
        self.runtime.run(tenant, &[call], run_turn, &mut host, &mut |_, bytes| {
            reply = String::from_utf8_lossy(bytes).into_owned();
        });
        reply
    }

    fn put(&mut self, key: &str, expiry_ms: u64) {
        let pin = self.participant.pin();
        // Before all expiries: nothing is over yet.
        let turn = Turn { now_ms: 1, pin: &pin, random: 1 };
        let partition = self.keyspace.partition_of(key.as_bytes());
        let write = KeyWrite::Put { key: key.as_bytes(), value: b"v", expiry_ms };
        self.keyspace.part_mut(partition).commit_writes(&[write], &turn).expect("room");
    }
}

/// A moment whose high word the other parts are told from.
const MOMENT_MS: u64 = 396 << 32;

#[test]
fn both_layers_agree_on_the_millisecond_in_which_a_key_is_over() {
    // As in Redis a key is there in the millisecond of its expiry, and over in the next. Words of
    // 32 bits are compared in JavaScript: around their limits, and for each way to find a key.
    let moments =
        [0, 1, 1_000_000, (1 << 31) - 1, 1 << 31, (1 << 32) - 1].map(|low| MOMENT_MS + low);
    let keys = ["7", "k", "12345678", "abcdefgh", "longer than eight", "é", "99999999", "-5"];
    for partitions in [1, 3] {
        let mut layers = Layers::new(partitions);
        for now_ms in moments {
            for (past_ms, key) in
                [0, 1, 2, 3, 4].into_iter().flat_map(|by| keys.map(|key| (by, key)))
            {
                let expiry_ms = now_ms + 2 - past_ms;
                let is_there = expiry_ms >= now_ms;
                let story = format!("{key} at {now_ms}, which is over after {expiry_ms}");
                layers.put(key, expiry_ms);
                let [is, value, left, all] = if is_there {
                    let left = format!(":{}\r\n", expiry_ms - now_ms);
                    let all = format!("*1\r\n${}\r\n{key}\r\n", key.len());
                    [":1\r\n".into(), "$1\r\nv\r\n".into(), left, all]
                } else {
                    [":0\r\n", "$-1\r\n", ":-2\r\n", "*0\r\n"].map(String::from)
                };
                let arg = [key.as_bytes()];
                // Functions first: commands remove what is over.
                for tenant in [0, 1] {
                    let mut ask = |name: &str| layers.function(now_ms, tenant, name, &arg);
                    assert_eq!(ask("exists"), is, "{story}");
                    assert_eq!(ask("get"), value, "{story}");
                    assert_eq!(ask("pttl"), left, "{story}");
                    assert_eq!(ask("keys"), all, "{story}");
                    if key.parse::<i64>().is_ok() {
                        assert_eq!(ask("get_number"), value, "{story}");
                        assert_eq!(ask("exists_number"), is, "{story}");
                    }
                }
                assert_eq!(layers.command(now_ms, Op::Keys, &[b"keys", arg[0]]), all, "{story}");
                assert_eq!(layers.command(now_ms, Op::PTtl, &[b"pttl", arg[0]]), left, "{story}");
                layers.put(key, expiry_ms);
                assert_eq!(layers.command(now_ms, Op::Get, &[b"get", arg[0]]), value, "{story}");
                layers.put(key, expiry_ms);
                assert_eq!(layers.command(now_ms, Op::Exists, &[b"exists", arg[0]]), is, "{story}");
                layers.command(now_ms, Op::Del, &[b"del", arg[0]]);
            }
        }
    }
}

#[test]
fn both_layers_set_the_same_expiry() {
    let mut layers = Layers::new(1);
    for ms in
        ["-1", "0", "1", "2147483647", "2147483648", "4294967295", "4294967296", "8000000000000000"]
    {
        for now_ms in [MOMENT_MS - 1, MOMENT_MS, MOMENT_MS + (1 << 31)] {
            let mut told = Vec::new();
            for by_function in [false, true] {
                layers.put("k", 0);
                let (key, ms) = (b"k".as_slice(), ms.as_bytes());
                let was_there = if by_function {
                    layers.function(now_ms, 0, "pexpire", &[key, ms])
                } else {
                    layers.command(now_ms, Op::PExpire, &[b"pexpire", key, ms])
                };
                assert_eq!(was_there, ":1\r\n");
                told.push(layers.command(now_ms, Op::PExpireTime, &[b"pexpiretime", key]));
            }
            assert_eq!(told[0], told[1], "{ms} from {now_ms} on");
        }
    }
}

#[test]
fn both_layers_take_keys_of_the_same_length() {
    for partitions in [1, 3] {
        let mut layers = Layers::new(partitions);
        for length in [0, 1, 3, 4, 7, 8, 9, 65_534, 65_535, 65_536, 70_000] {
            let key = vec![b'k'; length];
            let set = layers.function(MOMENT_MS, 0, "set", &[&key, b"by a function"]);
            assert_eq!(set.starts_with('-'), length > 65_535, "{length}: {set}");
            let found = layers.command(MOMENT_MS, Op::Get, &[b"get", &key]);
            assert_eq!(found.contains("by a function"), length <= 65_535, "{length}: {found}");
            let set = layers.command(MOMENT_MS, Op::Set, &[b"set", &key, b"by a command"]);
            assert_eq!(set.starts_with('-'), length > 65_535, "{length}: {set}");
            if length <= 65_535 {
                let found = layers.function(MOMENT_MS, 0, "get", &[&key]);
                assert_eq!(found, "$12\r\nby a command\r\n", "{length}");
            }
        }
    }
}

#[test]
fn a_number_as_key_is_its_decimal_string_in_both_layers() {
    let numbers = "0 9 10 4095 4096 9999 10000 99999999 100000000 \
        2147483647 2147483648 4294967296 9007199254740991 -1 -9007199254740991";
    for partitions in [1, 3] {
        let mut layers = Layers::new(partitions);
        for number in numbers.split(' ') {
            let key = number.as_bytes();
            let set = layers.function(MOMENT_MS, 0, "set_number", &[key, b"f"]);
            assert_eq!(set, "$-1\r\n", "{number}");
            let got = layers.command(MOMENT_MS, Op::Get, &[b"get", key]);
            assert_eq!(got, "$1\r\nf\r\n", "{number}");
            assert_eq!(layers.command(MOMENT_MS, Op::Set, &[b"set", key, b"c"]), "+OK\r\n");
            for tenant in [0, 1] {
                let got = layers.function(MOMENT_MS, tenant, "get_number", &[key]);
                assert_eq!(got, "$1\r\nc\r\n", "{number}");
            }
        }
        for number in ["9007199254740992", "-9007199254740992", "1.5", "NaN"] {
            let set = layers.function(MOMENT_MS, 0, "set_number", &[number.as_bytes(), b"f"]);
            assert!(set.contains("a key is a string, a safe integer or bytes"), "{number}: {set}");
        }
    }
}

#[test]
fn both_layers_take_the_same_texts_for_integers() {
    let mut layers = Layers::new(1);
    let texts = "0|10|-5|007|+1| 1|1 |-0||1.0|1e3|0x10|-|١|9007199254740990|abc|1\n";
    for text in texts.split('|') {
        let mut told = Vec::new();
        for by_function in [false, true] {
            layers.command(MOMENT_MS, Op::Set, &[b"set", b"n", text.as_bytes()]);
            told.push(if by_function {
                layers.function(MOMENT_MS, 0, "incr", &[b"n"])
            } else {
                layers.command(MOMENT_MS, Op::Incr, &[b"incr", b"n"])
            });
        }
        let [command, function] = [&told[0], &told[1]];
        assert_eq!(command.starts_with('-'), function.starts_with('-'), "{text:?}: {told:?}");
        assert!(command.starts_with('-') || command == function, "{text:?}: {told:?}");
    }
}
