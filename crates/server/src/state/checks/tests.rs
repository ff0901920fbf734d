//! What waits for its check, and in which order.

use super::*;

/// Two clients of another shard load one source. The first load took the outcome of its check,
/// and the second one had the owner's shard wait for another check.
#[test]
fn an_outcome_stays_for_all_who_were_told_of_it() {
    let checks = Arc::new(Checks::new(Some("/bin/false".into()), Box::new(|| {})));
    let limits = FunctionLimits::default();
    let entry = Entry::new(b"s", &limits, false);
    lock(&checks.entries).push_back(Entry { outcome: Some(Ok(())), ..entry });
    assert!((0..2).all(|_| checks.is_done(b"s", &limits)));
    for left in [1, 0] {
        assert_eq!(checks.take(b"s", &limits), Ok(()));
        assert_eq!(lock(&checks.entries).len(), left);
    }
}

/// EXEC waited behind all sources that others had sent, and its shard served nobody meanwhile.
#[test]
fn a_source_for_which_a_shard_waits_is_the_next() {
    let checks = Arc::new(Checks::new(None, Box::new(|| {})));
    let limits = FunctionLimits::default();
    for (source, holds_shard) in [(b"a", false), (b"b", false), (b"c", true), (b"d", false)] {
        lock(&checks.entries).push_back(Entry::new(source, &limits, holds_shard));
    }
    // It was ordered before the shard came to wait for it.
    assert!(!checks.look(b"d", &limits, 0, true));
    let order: Vec<u8> = std::iter::from_fn(|| Some(checks.next()?.source[0])).collect();
    assert_eq!(order, b"cdab");
}

/// Outcomes that nobody takes, since their clients have gone, take no memory of those that wait.
#[test]
fn outcomes_and_sources_that_wait_have_bounds_of_their_own() {
    let checks = Arc::new(Checks::new(None, Box::new(|| {})));
    let limits = FunctionLimits::default();
    let waits = |number: usize| number.is_multiple_of(2) && number < 2 * WAITING_MAX;
    for number in 0..100 {
        let source = number.to_string();
        checks.look(source.as_bytes(), &limits, 0, false);
        if !waits(number) {
            checks.note((source.as_bytes(), &limits), Ok(()));
        }
    }
    let entries = lock(&checks.entries);
    let known = entries.iter().filter(|entry| entry.outcome.is_some()).count();
    assert_eq!((known, entries.len() - known), (OUTCOMES_MAX, WAITING_MAX));
}

/// A process that answers what is no reply, and lives on, was waited for without end, by all
/// sources that came later.
#[test]
fn a_process_that_lives_on_is_ended_and_how_one_ended_is_told() {
    let end = |script: &str, kind: io::ErrorKind| {
        let mut shell = Command::new("sh");
        let child = shell.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("a shell");
        let (stream, _theirs) = UnixStream::pair().expect("a socket");
        let mut process = Process { child, stream, limits: FunctionLimits::default() };
        if kind == io::ErrorKind::UnexpectedEof {
            // Its end is why the socket was closed.
            let stat = format!("/proc/{}/stat", process.child.id());
            let is_over = || std::fs::read_to_string(&stat).is_ok_and(|it| it.contains(") Z "));
            let began = std::time::Instant::now();
            while !is_over() && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let (told, ended) = channel();
        std::thread::spawn(move || told.send(process.end(&kind.into())));
        ended.recv_timeout(Duration::from_secs(60)).expect("it is waited for without end")
    };
    assert_eq!(end("exec sleep 1000", io::ErrorKind::InvalidData), "a reply that is none");
    assert_eq!(end("exec sleep 1000", io::ErrorKind::TimedOut), "no reply");
    assert_eq!(end("kill -SEGV $$", io::ErrorKind::UnexpectedEof), "signal 11");
    assert_eq!(end("exit 3", io::ErrorKind::UnexpectedEof), "exit status: 3");
}
