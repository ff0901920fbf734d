//! Writes for which the journal has no room yet: they wait for the log's thread, and none is
//! refused while that gets on.

use crate::common::{TestServer, request};

/// Clients, and writes of each that are sent at once: those of one turn may be more than the
/// journal takes.
const SENDERS: usize = 16;
const ROUNDS: usize = 10;
/// Keys of a write, and bytes of each: together less than a fourth of the journal.
const KEYS: usize = 20;
const VALUE_BYTES: usize = 8_000;

const LIBRARY: &str = "#!js name=fill\n\
    const value = 'v'.repeat(8000);\n\
    export function fill(db, args, keys) {\n\
      for (const key of keys) db.set(key, value);\n\
    }\n";

/// The same for each way by which several keys are written at once.
#[test]
fn writes_of_several_keys_wait_for_the_journal() {
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let dir = disk.path().to_str().expect("a path of ours").to_owned();
    let server = TestServer::with(&[
        ("maxmemory", "1gb"), // the test is about the journal: memory holds all versions
        ("appendonly", "yes"),
        ("dir", &dir),
        ("log-on-tmpfs", "yes"), // wherever the build is
        ("journal-size", "1mb"),
        ("log-file-size", "1mb"),
        ("journal-wait-ms", "20000"), // a disk that others use too gets on later
    ]);
    let mut client = server.connect();
    client.send(request(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]));
    client.expect("$4\r\nfill\r\n");
    let value = vec![b'v'; VALUE_BYTES];
    let keys: Vec<Vec<u8>> = (0..KEYS).map(|n| format!("k{n}").into_bytes()).collect();
    let sets = keys.iter().flat_map(|key| request(&[b"SET", key, &value]));
    let exec = [b"MULTI\r\n", sets.collect::<Vec<u8>>().as_slice(), b"EXEC\r\n"].concat();
    let pairs = keys.iter().flat_map(|key| [key.as_slice(), &value]);
    let mset = request(&std::iter::once(&b"MSET"[..]).chain(pairs).collect::<Vec<_>>());
    let count = KEYS.to_string();
    let words = [&b"FCALL"[..], b"fill", count.as_bytes()].into_iter();
    let words = words.chain(keys.iter().map(Vec::as_slice));
    let call = request(&words.collect::<Vec<_>>());
    let queued = "+QUEUED\r\n".repeat(KEYS);
    let done = format!("+OK\r\n{queued}*{KEYS}\r\n{}", "+OK\r\n".repeat(KEYS));
    for (write, reply) in [(mset, "+OK\r\n"), (exec, done.as_str()), (call, "$-1\r\n")] {
        let mut senders: Vec<_> = (0..SENDERS).map(|_| server.connect()).collect();
        std::thread::scope(|scope| {
            for sender in &senders {
                let stream = sender.stream.try_clone().expect("a descriptor is left");
                let all = write.repeat(ROUNDS);
                scope.spawn(move || std::io::Write::write_all(&mut &stream, &all));
            }
            senders.iter_mut().for_each(|sender| sender.expect(reply.repeat(ROUNDS)));
        });
    }
    client.says("STRLEN k0", &format!(":{VALUE_BYTES}\r\n"));
}
