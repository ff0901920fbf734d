//! Every command on a key whose time is over and that was not swept: the key is missing.
//!
//! Two stores get the same commands. The key's time is over in one, and it was never there in the
//! other. Replies and remaining keys must be equal, byte by byte. Each command has fresh stores,
//! since the first command that meets the key deletes it. The same with a key at the very
//! millisecond of its expiry, which is there: it is compared with a key that has a millisecond
//! left.

use nigh_store::{KeyWrite, Lack, Op, Store};

use crate::support::{Fixture, Resp2, op};

/// The life of the key `k`.
const LIFE_MS: u64 = 5000;

/// The cases of each command; `k` is the key. A new command has to have a row here.
fn commands(op: Op) -> &'static [&'static str] {
    match op {
        Op::Get => &["GET k"],
        Op::Set => &[
            "SET k 7",
            "SET k 7 NX",
            "SET k 7 XX",
            "SET k 7 GET",
            "SET k 7 NX GET",
            "SET k 7 XX GET",
            "SET k 7 KEEPTTL",
            "SET k 7 GET KEEPTTL",
            "SET k 7 EX 9",
        ],
        Op::SetNx => &["SETNX k 7"],
        Op::SetEx => &["SETEX k 9 7"],
        Op::PSetEx => &["PSETEX k 900 7"],
        Op::GetSet => &["GETSET k 7"],
        Op::GetDel => &["GETDEL k"],
        Op::GetEx => &["GETEX k", "GETEX k EX 9", "GETEX k PERSIST", "GETEX k PXAT 5"],
        Op::MGet => &["MGET k l", "MGET k"],
        Op::MSet => &["MSET k 7", "MSET l 7 k 8"],
        Op::MSetNx => &["MSETNX k 7", "MSETNX m 7 k 8"],
        Op::Append => &["APPEND k 7"],
        Op::StrLen => &["STRLEN k"],
        Op::GetRange => &["GETRANGE k 0 -1"],
        Op::SubStr => &["SUBSTR k 0 -1"],
        Op::SetRange => &["SETRANGE k 1 7", "SETRANGE k 1 ''"],
        Op::Incr => &["INCR k"],
        Op::Decr => &["DECR k"],
        Op::IncrBy => &["INCRBY k 7"],
        Op::DecrBy => &["DECRBY k 7"],
        Op::IncrByFloat => &["INCRBYFLOAT k 0.5"],
        Op::Del => &["DEL k", "DEL k l"],
        Op::Unlink => &["UNLINK k", "UNLINK l k"],
        Op::Exists => &["EXISTS k", "EXISTS k k l"],
        Op::Touch => &["TOUCH k", "TOUCH k l"],
        Op::Type => &["TYPE k"],
        Op::Rename => &["RENAME k m", "RENAME l k"],
        Op::RenameNx => &["RENAMENX k m", "RENAMENX l k"],
        Op::Copy => &["COPY k m", "COPY k l REPLACE", "COPY l k", "COPY l k REPLACE"],
        Op::RandomKey => &["RANDOMKEY"],
        Op::Keys => &["KEYS *", "KEYS k"],
        Op::Scan => &["SCAN 0", "SCAN 0 MATCH k COUNT 100"],
        Op::Expire => &["EXPIRE k 9", "EXPIRE k 9 XX", "EXPIRE k 0", "EXPIRE k 9 NX"],
        Op::PExpire => &["PEXPIRE k 900", "PEXPIRE k 900 GT"],
        Op::ExpireAt => &["EXPIREAT k 1800000000", "EXPIREAT k 1 LT"],
        Op::PExpireAt => &["PEXPIREAT k 1800000000000"],
        Op::Ttl => &["TTL k"],
        Op::PTtl => &["PTTL k"],
        Op::ExpireTime => &["EXPIRETIME k"],
        Op::PExpireTime => &["PEXPIRETIME k"],
        Op::Persist => &["PERSIST k"],
        Op::Object => {
            &["OBJECT ENCODING k", "OBJECT REFCOUNT k", "OBJECT IDLETIME k", "OBJECT FREQ k"]
        }
        Op::MemoryUsage => &["MEMORY|USAGE USAGE k"],
        Op::DbSize => &["DBSIZE"],
        Op::FlushDb => &["FLUSHDB"],
        Op::FlushAll => &["FLUSHALL"],
    }
}

/// A reply as it is, or sorted if its order has no meaning.
fn sorted(op: Op, reply: String) -> String {
    let mut words: Vec<&str> = reply.split(' ').collect();
    if matches!(op, Op::Keys | Op::Scan) {
        words.sort_unstable();
    }
    words.join(" ")
}

/// The ways to run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By itself.
    Alone,
    /// In a transaction, which is committed.
    InTransaction,
    /// On a view, and at the owner if the view lacks something.
    OnView,
}

/// A store with the live key `l`, and with `k`, if it shall have so much of its life left when the
/// command comes.
fn store(left_ms: Option<i64>) -> Fixture {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.run("SET l 1"), "+OK");
    if let Some(left_ms) = left_ms {
        let life_ms = LIFE_MS.checked_add_signed(left_ms).expect("a time");
        assert_eq!(fixture.run(&format!("SET k 5 PX {life_ms}")), "+OK");
    }
    // No sweep runs before the command.
    fixture.now_ms += LIFE_MS;
    fixture
}

fn words(command: &str) -> Vec<&[u8]> {
    command.split(' ').map(|word| if word == "''" { &b""[..] } else { word.as_bytes() }).collect()
}

fn run(fixture: &mut Fixture, way: Way, command: &str) -> String {
    if way == Way::OnView {
        let mut view = Store::view(fixture.turn(|store, _| store.views()));
        let args = words(command);
        let (reply, lack) = fixture.turn(|_, turn| {
            let mut out = Resp2::default();
            view.apply(op(args[0]), &args, turn, &mut out);
            (out.0, view.take_lack())
        });
        if lack == Lack::Nothing {
            return String::from_utf8(reply).expect("text").trim_end().replace("\r\n", " ");
        }
    }
    if way != Way::InTransaction {
        return fixture.run(command);
    }
    fixture.turn(|store, _| store.begin());
    let reply = fixture.run(command);
    fixture.turn(|store, turn| store.commit(turn)).expect("room");
    reply
}

/// All keys with their values and expiries, and the number of keys.
fn state(fixture: &mut Fixture) -> Vec<String> {
    let each = ["k", "l", "m"].into_iter().flat_map(|key| {
        [format!("GET {key}"), format!("PEXPIRETIME {key}"), format!("EXISTS {key}")]
    });
    let asked: Vec<String> =
        each.chain(["DBSIZE".to_owned()]).map(|ask| fixture.run(&ask)).collect();
    asked.into_iter().chain([sorted(Op::Keys, fixture.run("KEYS *"))]).collect()
}

fn each(mut story: impl FnMut(Op, Way, &'static str)) {
    for &op in Op::ALL {
        for command in commands(op) {
            assert!(command.to_ascii_lowercase().starts_with(op.name()), "{command} of {op:?}");
            story(op, Way::Alone, command);
            story(op, Way::InTransaction, command);
            if op.only_reads() {
                story(op, Way::OnView, command);
            }
        }
    }
}

/// SETNX once took a key whose time was over, and that was not swept, as if it were there.
#[test]
fn to_every_command_a_key_that_is_over_is_as_missing() {
    each(|op, way, command| {
        let (mut over, mut never) = (store(Some(-1)), store(None));
        let found = sorted(op, run(&mut over, way, command));
        let wanted = sorted(op, run(&mut never, way, command));
        // DBSIZE counts without looking.
        let expected = if op == Op::DbSize { ":2" } else { &wanted };
        assert_eq!(found, expected, "{command}, {way:?}");
        assert_eq!(state(&mut over), state(&mut never), "after {command}, {way:?}");
    });
}

/// A key is there up to the millisecond of its expiry, for every command alike.
#[test]
fn to_every_command_a_key_is_there_at_the_millisecond_of_its_expiry() {
    each(|op, way, command| {
        let (mut last, mut longer) = (store(Some(0)), store(Some(1)));
        let found = sorted(op, run(&mut last, way, command));
        let later = sorted(op, run(&mut longer, way, command));
        let wanted = match op {
            Op::PTtl => ":0".to_owned(),
            Op::PExpireTime => format!(":{}", last.now_ms),
            // One of the two keys that are there.
            Op::RandomKey => found.clone(),
            _ => later,
        };
        assert_eq!(found, wanted, "{command}, {way:?}");
        let exists = |fixture: &mut Fixture| fixture.run("EXISTS k l m");
        assert_eq!(exists(&mut last), exists(&mut longer), "after {command}, {way:?}");
    });
}

/// The rest looks at the clock too: functions' walks and writes, the sweep, and WATCH.
#[test]
fn to_functions_and_watchers_a_key_ends_at_the_same_millisecond() {
    for (left_ms, there) in [(-1, false), (0, true)] {
        let mut fixture = store(Some(left_ms));
        let mut met = Vec::new();
        fixture.turn(|store, turn| {
            store.scan_keys(b"k", 0, 100, turn, &mut |key| met.push(key.to_vec()));
        });
        assert_eq!(met.len(), usize::from(there), "a function's walk, {left_ms} ms left");
        // Watched a millisecond before its last; no command writes it.
        fixture.now_ms -= 1;
        let early = fixture.turn(|store, turn| store.watch(b"k", turn));
        fixture.now_ms += 1;
        fixture.turn(|store, turn| {
            assert_eq!(store.watch_dirty(&early, turn), !there, "its time came, {left_ms} ms left");
            store.unwatch(early);
        });
        let token = fixture.turn(|store, turn| store.watch(b"k", turn));
        let now_ms = fixture.now_ms;
        let expire = KeyWrite::Expire { key: b"k", expiry_ms: now_ms + 10 };
        let put = KeyWrite::Put { key: b"m", value: b"1", expiry_ms: now_ms };
        fixture.turn(|store, turn| {
            store.commit_writes(&[expire, put], turn).expect("room");
            assert_eq!(store.watch_dirty(&token, turn), there, "a write, {left_ms} ms left");
            store.unwatch(token);
        });
        assert_eq!(fixture.run("EXISTS k"), if there { ":1" } else { ":0" });
        assert_eq!(fixture.run("EXISTS m"), ":1", "what ends now is there now");
        // An expiry of now, or before, deletes; one of a millisecond later doesn't.
        for (expiry_ms, left) in [(now_ms + 1, ":1"), (now_ms, ":0")] {
            fixture.run("SET n 1");
            let writes = [KeyWrite::Expire { key: b"n", expiry_ms }, put];
            fixture.turn(|store, turn| store.commit_writes(&writes, turn)).expect("room");
            assert_eq!(fixture.run("EXISTS n"), left);
            fixture.run("SET n 1");
            assert_eq!(fixture.run(&format!("PEXPIREAT n {expiry_ms}")), ":1");
            assert_eq!(fixture.run("EXISTS n"), left);
            fixture.run("SET n 1");
            assert_eq!(fixture.run(&format!("GETEX n PXAT {expiry_ms}")), "$1 1");
            assert_eq!(fixture.run("EXISTS n"), left);
        }
    }
}
