//! A client whose process may take little memory meets values that don't fit. It was ended by the
//! allocator (SIGABRT); it is told.
//!
//! A child has the limit (RLIMIT_AS, as `ulimit -v` sets it). The server is the parent's.

use crate::support::{Manner, Server, limit, run_child};
use nigh_client::{Address, CallError, Client, ClientOptions, Frame, LocalUse};

/// Names the child's server.
const SOCKET: &str = "NIGH_SHORT_OF_MEMORY";
/// Of a value, and of all that the child may take beside what it has.
const LONG_BYTES: usize = 24 << 20;
const MORE_BYTES: u64 = 8 << 20;

#[test]
fn a_value_that_doesnt_fit_into_memory_is_an_error() {
    let server = Server::start(Manner::default());
    server.owner().put(b"long", &vec![7; LONG_BYTES], 0);
    server.owner().put(b"short", b"hello", 0);
    run_child(&server, SOCKET, "short_of_memory::child_with_little_memory");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_with_little_memory() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    for local in [LocalUse::Required, LocalUse::Never] {
        let options = ClientOptions { local, ..ClientOptions::default() };
        let mut client = Client::connect_with(&Address::unix(&socket), options).expect("a client");
        meets_a_long_value(&mut client, local);
    }
    eprintln!("all was told");
}

fn meets_a_long_value(client: &mut Client, local: LocalUse) {
    let is_local = local == LocalUse::Required;
    let sent = vec![8; LONG_BYTES];
    let told = |what: &str, result: Result<(), CallError>| {
        let error = result.expect_err(what);
        assert!(error.to_string().contains("no memory for"), "{what}: {error}");
        // From memory the error says the size; a reply that was lost may be read again.
        let is_named = matches!(error, CallError::NoMemory { bytes: LONG_BYTES, .. });
        assert!(is_named || matches!(error, CallError::Unanswered { .. }) && !is_local, "{error}");
    };
    limit(Some(MORE_BYTES));
    told("get", client.get(b"long").map(drop));
    told("multi_get", client.multi_get(&[b"short", b"long"]).map(drop));
    let unsent = client.set(b"short", &sent).expect_err("there is no memory to send it from");
    assert!(matches!(unsent, CallError::NoMemory { .. }), "{unsent}");
    if is_local {
        told("view", client.view(|view| view.get(b"long")).map(drop));
        told("scan", client.scan(b"long", 0, 1000, |_, _| ()).map(drop));
        let end = client.get_in_place(b"long", |value| {
            let mut part = [0; 4];
            value.read(LONG_BYTES - 4, &mut part).map(|()| part)
        });
        assert_eq!(end.expect("parts fit"), Some([7; 4]));
    }
    assert_eq!(client.get(b"short").expect("the client goes on").as_deref(), Some(&b"hello"[..]));
    let error = client.call(&[b"MGET", b"long"]).expect_err("no memory for the reply");
    assert!(matches!(error, CallError::Unanswered { .. }), "{error}");
    limit(None);
    meets_a_long_request(client, &sent);
    let whole = client.get(b"long").expect("there is memory again").expect("it is there");
    assert_eq!(whole.len(), LONG_BYTES);
}

/// Pipelines ended the process too. The requests before the long one have their replies, those
/// behind it aren't sent, and a transaction that was begun is over.
fn meets_a_long_request(client: &mut Client, long: &[u8]) {
    let set = |key: &'static [u8], value| [&b"SET"[..], key, value];
    client.set(b"first", b"0").expect("there is memory");
    limit(Some(MORE_BYTES));
    let requests = [set(b"first", b"1"), set(b"second", long), set(b"third", b"3")];
    let mut replies = Vec::new();
    let error = client.pipeline_each(requests, |reply| replies.push(reply)).expect_err("no memory");
    assert!(matches!(error, CallError::NoMemory { bytes, .. } if bytes > LONG_BYTES), "{error}");
    assert!(error.to_string().contains("of a request of a pipeline"), "{error}");
    assert_eq!(replies, [Frame::Simple(b"OK"[..].into())]);
    limit(None);
    assert_eq!(client.get(b"first").expect("it goes on").as_deref(), Some(&b"1"[..]));
    assert!(
        !client.exists(b"second").expect("a read") && !client.exists(b"third").expect("a read")
    );
}
