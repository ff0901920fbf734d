//! Writes that wait for memory.

use super::*;

const TRYAGAIN: &str = "-TRYAGAIN memory is being reclaimed";
/// As long as a write waits.
const LONG: Duration = Duration::from_secs(1);

/// Overwrites a key, in one turn of the shard that owns it: so much is read at once.
fn write(shards: &mut Shards, client: &mut Peer) {
    let value = vec![b'x'; 10_000];
    shards.send(client, &[vec![b"SET", b"key", &value]]);
}

/// In so many turns a write may wait for their own work on memory.
const TURNS: usize = 200;

/// What a client has after that.
fn came(shards: &mut Shards, client: &mut Peer) -> String {
    for _ in 0..TURNS {
        shards.turn_one(0, false);
        let _ = client.stream.read_to_end(&mut client.came);
        shards.shards[0].work.ready.queue(client.slot);
        if !client.came.is_empty() {
            break;
        }
    }
    String::from_utf8(std::mem::take(&mut client.came)).expect("a short reply")
}

/// Writes until one is kept waiting.
fn fill(shards: &mut Shards, client: &mut Peer) {
    let is_kept_waiting = (0..20_000).any(|_| {
        write(shards, client);
        came(shards, client).is_empty()
    });
    assert!(is_kept_waiting);
}

#[test]
fn each_write_waits_for_memory_by_its_own_clock() {
    // Once the shard had one clock for all its writes. Under load somebody always waited, so that
    // it never began anew, and the client that came last was refused at once.
    let mut shards = Shards::of(&[1]);
    shards.at = Some(Instant::now());
    let [mut first, mut second] = [0, 0].map(|shard| shards.connect(shard, TenantId(0)));
    // While this shard takes no turn, no memory comes back.
    let looker = shards.shards.pop().expect("two shards");
    fill(&mut shards, &mut first);
    shards.ahead += LONG;
    write(&mut shards, &mut second);
    assert_eq!(came(&mut shards, &mut second), "", "it has only come");
    let reply = came(&mut shards, &mut first);
    assert!(reply.starts_with(TRYAGAIN), "{reply:?}");
    shards.ahead += LONG;
    let reply = came(&mut shards, &mut second);
    assert!(reply.starts_with(TRYAGAIN), "{reply:?}");
    // Its next command waits anew, and has what it waits for.
    write(&mut shards, &mut second);
    assert_eq!(came(&mut shards, &mut second), "");
    shards.shards.push(looker);
    shards.expect(&mut second, b"+OK\r\n", "memory came back");
}

#[test]
fn what_came_with_a_write_that_waited_in_vain_waits_with_it() {
    // Each of them waited anew once, so the last of a pipeline, or of another shard's clients, was
    // told after as many seconds as there were.
    let mut shards = Shards::of(&[1]);
    shards.at = Some(Instant::now());
    let [mut first, mut second] = [0, 0].map(|shard| shards.connect(shard, TenantId(0)));
    let _looker = shards.shards.pop().expect("two shards");
    fill(&mut shards, &mut first);
    let value = vec![b'x'; 10_000];
    shards.send(&mut second, &vec![vec![b"SET".as_slice(), b"key", &value]; 5]);
    assert_eq!(came(&mut shards, &mut second), "");
    shards.ahead += LONG;
    let replies = (0..5).map(|_| came(&mut shards, &mut second)).collect::<String>();
    assert_eq!(replies.matches(TRYAGAIN).count(), 5, "{replies:?}");
    write(&mut shards, &mut second);
    assert_eq!(came(&mut shards, &mut second), "", "it has only come");
}

#[test]
fn unwatch_in_a_transaction_disarms_no_exec_that_comes_again() {
    // EXEC finds no memory behind the UNWATCH, and comes again when some has come back. Meanwhile
    // the watched key is over. The watch was forgotten in the first run, and the second one did all
    // that was queued.
    let mut shards = Shards::of(&[1]);
    shards.at = Some(Instant::now());
    let [mut client, mut other] = [0, 0].map(|shard| shards.connect(shard, TenantId(0)));
    let looker = shards.shards.pop().expect("two shards");
    shards.send(&mut other, &[vec![b"SET", b"watched", b"v", b"PX", b"50"]]);
    assert_eq!(came(&mut shards, &mut other), "+OK\r\n");
    for _ in 0..2_000 {
        write(&mut shards, &mut other);
        assert_eq!(came(&mut shards, &mut other), "+OK\r\n");
    }
    for command in [vec![b"WATCH".as_slice(), b"watched"], vec![b"MULTI"]] {
        shards.send(&mut client, &[command]);
        assert_eq!(came(&mut shards, &mut client), "+OK\r\n");
    }
    let value = vec![b'x'; 100_000];
    let set = vec![b"SET".as_slice(), b"large", &value];
    for command in std::iter::once(vec![b"UNWATCH".as_slice()]).chain(vec![set; 500]) {
        shards.send(&mut client, &[command]);
        assert_eq!(came(&mut shards, &mut client), "+QUEUED\r\n");
    }
    shards.send(&mut client, &[vec![b"EXEC"]]);
    assert_eq!(came(&mut shards, &mut client), "", "it waits for memory");
    let connection = shards.shards[0].work.slab.get_mut(client.slot).expect("it is there");
    let transaction = connection.pipe.client.transaction.as_ref().expect("it comes again");
    assert!(transaction.was_busy && transaction.done.contains_key(&0), "UNWATCH has run");
    shards.now_ms += 100;
    shards.shards.push(looker);
    shards.expect(&mut client, b"*-1\r\n", "the watched key is over");
}
