//! Requests by a ring: long ones, those whose reply is another's, and those that no server takes.

use crate::support::{Manner, SPEC, Server};
use nigh_client::{CallError, ClientOptions, ForeignValues, Frame, LocalUse};

/// A pipeline, a request and a reply may each be many times as long as the rings. Replies come in
/// order.
#[test]
fn what_is_longer_than_the_ring_goes_through_it() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    let long = vec![b'x'; 40 * SPEC.request_bytes as usize];
    client.set(b"long", &long).unwrap();
    assert_eq!(client.call(&[b"GET", b"long"]).unwrap(), Frame::Bulk(long));
    let keys: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
    let sets = keys.iter().map(|key| ["SET", key, key]);
    assert!(client.pipeline(sets).unwrap().iter().all(|it| *it == Frame::Simple(b"OK".into())));
    let replies = client.pipeline(keys.iter().map(|key| ["GET", key])).unwrap();
    assert!(replies.iter().zip(&keys).all(|(it, key)| it.bytes() == Some(key.as_bytes())));
    let wanted: Vec<&[u8]> = keys.iter().map(String::as_bytes).collect();
    let mut values = ForeignValues::new();
    client.multi_get_into(&wanted, &mut values).unwrap();
    assert!((0..keys.len()).all(|at| values.get(at) == Some(wanted[at])));
}

/// A panic in the midst of a pipeline leaves replies behind: they are nobody's. What says that it
/// was queued is neither a value nor done.
#[test]
fn no_reply_is_taken_for_another_request_s() {
    let server = Server::start(Manner::default());
    for local in [LocalUse::Required, LocalUse::Never] {
        let mut client = server.client(ClientOptions { local, ..ClientOptions::default() });
        client.set(b"a", b"of a").unwrap();
        client.set(b"b", b"of b").unwrap();
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            client.pipeline_each([["GET", "a"]; 2], |_| panic!("a mistake"))
        }));
        assert!(panics.is_err());
        assert_eq!(client.call(&[b"GET", b"b"]).unwrap(), Frame::Bulk(b"of b".into()));
        let queued = client.set(b"queued", b"1").unwrap_err();
        assert!(queued.to_string().contains("SET: QUEUED, as a MULTI is open"), "{queued}");
        assert_eq!(client.get(b"b").unwrap(), Some(b"of b".to_vec()));
    }
    let mut client =
        server.client(ClientOptions { local: LocalUse::Never, ..ClientOptions::default() });
    assert!(matches!(client.get(b"queued"), Err(CallError::Refused { .. })));
    assert!(client.get_in_place(b"queued", |value| Ok(value.len())).is_err());
    assert_eq!(client.call(&[]).unwrap(), Frame::Error(b"ERR a request without words".into()));
    let long = vec![0; 70_000];
    assert!(matches!(client.set(&long, b""), Err(CallError::KeyTooLong { bytes: 70_000 })));
}

/// A word that is longer than a value can be is told before it is sent. A pipeline and a read of
/// any kind sent it, so the server ended the connection, and the error said that its reply was
/// lost. The requests before it in a pipeline are done, those behind it aren't.
#[test]
fn a_word_that_is_too_long_is_not_sent() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    client.set(b"a", b"of a").unwrap();
    let value = vec![0; (512 << 20) + 1]; // not touched, so it takes no memory
    let is_told =
        |error| matches!(error, Err(CallError::ValueTooLong { bytes }) if bytes > 512 << 20);
    assert!(is_told(client.set(b"a", &value)));
    assert!(is_told(client.call_read(&[b"FCALL_RO", b"of", b"0", &value]).map(drop)));
    assert_eq!(client.link_number(), 1);
    let set = |key: &'static [u8], value| [&b"SET"[..], key, value];
    let requests = [set(b"first", b"1"), set(b"a", &value), set(b"third", b"3")];
    let mut replies = Vec::new();
    assert!(is_told(client.pipeline_each(requests, |reply| replies.push(reply))));
    assert_eq!(replies, [Frame::Simple(b"OK".into())]);
    assert_eq!(client.multi_get(&[b"a", b"third"]).unwrap(), [Some(b"of a".to_vec()), None]);
    assert_eq!(server.asked(), ["SET", "SET"]);
}

/// A request of more words than a server takes is told before it is sent. It was sent, so the
/// server ended the connection: other requests of a pipeline, or of other callers that shared it,
/// failed too.
#[test]
fn a_request_of_too_many_words_is_not_sent() {
    let server = Server::start(Manner::default());
    let mut client = server.local();
    let many = vec![&b"x"[..]; (1 << 20) + 1];
    let is_told = |error| matches!(error, Err(CallError::TooManyWords { words: 1_048_577 }));
    assert!(is_told(client.call(&many).map(drop)));
    assert!(is_told(client.call_read(&many).map(drop)));
    let mut replies = Vec::new();
    let set = vec![&b"SET"[..], b"a", b"1"];
    assert!(is_told(client.pipeline_each([set.clone(), many, set], |reply| replies.push(reply))));
    assert_eq!(replies, [Frame::Simple(b"OK".into())]);
    assert_eq!(server.asked(), ["SET"]);
}
