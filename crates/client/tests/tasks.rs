//! Many tasks that share a client: what comes from memory, what goes by requests, in which order,
//! and what they are told when the server ends.

#[path = "tasks/short_of_memory.rs"]
mod short_of_memory;
#[path = "local/support.rs"]
#[allow(dead_code, reason = "the tests of a client of one thread use the rest")]
mod support;

use nigh_client::{
    AsyncClient, CallError, Client, ClientOptions, ConnectionOptions, Frame, KeyLife, LocalUse,
};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::{Manner, Server};

/// Runs a future on a runtime of two threads.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("two threads").block_on(future)
}

async fn connect(server: &Server, options: ClientOptions) -> AsyncClient {
    AsyncClient::connect_with(&server.address(), options).await.expect("a client")
}

/// A task reads what it has written, and from memory.
#[test]
fn a_task_reads_what_it_has_written() {
    let server = Server::start(Manner::default());
    run(async {
        let client = connect(&server, ClientOptions::default()).await;
        assert!(client.is_local());
        for round in 0..500u32 {
            let value = round.to_string().into_bytes();
            client.set(b"key", &value).await.unwrap();
            assert_eq!(client.get(b"key").await.unwrap(), Some(value));
        }
        assert_eq!(server.asked(), vec!["SET"; 500], "a read asked");
        assert!(client.exists(b"key").await.unwrap() && !client.exists(b"none").await.unwrap());
        assert_eq!(client.ttl(b"key").await.unwrap(), Some(KeyLife::Forever));
        let values = client.multi_get(&[b"none", b"key"]).await.unwrap();
        assert_eq!(values, [None, Some(b"499".to_vec())]);
        assert_eq!(client.multi_get(&[]).await.unwrap(), Vec::<Option<Vec<u8>>>::new());
        assert_eq!(client.del(&[b"key"]).await.unwrap(), 1);
        assert_eq!(client.get(b"key").await.unwrap(), None);
    });
}

/// Without local access each call is a request, and the answers are the same. What the server
/// refuses, and what it doesn't know, is an error that names the command.
#[test]
fn without_memory_all_goes_by_requests() {
    let server = Server::start(Manner::default());
    run(async {
        let never = ClientOptions { local: LocalUse::Never, ..ClientOptions::default() };
        let client = connect(&server, never).await;
        assert!(!client.is_local());
        client.set(b"key", b"value").await.unwrap();
        assert_eq!(client.get(b"key").await.unwrap(), Some(b"value".to_vec()));
        assert_eq!(client.get(b"none").await.unwrap(), None);
        assert!(client.exists(b"key").await.unwrap());
        let values = client.multi_get(&[b"none", b"key"]).await.unwrap();
        assert_eq!(values, [None, Some(b"value".to_vec())]);
        assert_eq!(server.asked(), ["PING", "SET", "GET", "GET", "EXISTS", "MGET"]);
        let refused = client.incr(b"key", 1).await.unwrap_err();
        assert!(matches!(&refused, CallError::Refused { command, .. } if command == "INCRBY"));
        assert!(matches!(client.call(&[b"INCRBY"]).await.unwrap(), Frame::Error(_)));
        assert!(matches!(client.call(&[]).await.unwrap(), Frame::Error(_)));
        let long = vec![b'k'; 70_000];
        assert!(matches!(client.get(&long).await, Err(CallError::KeyTooLong { bytes: 70_000 })));
    });
}

/// Requests of many tasks are sent in the order in which they were put, and each has its own reply.
/// What is done with the client itself has it alone.
#[test]
fn each_task_has_the_reply_to_its_own_request() {
    let server = Server::start(Manner::default());
    run(async {
        let client = connect(&server, ClientOptions::default()).await;
        let tasks: Vec<_> = (0..64u32)
            .map(|task| {
                let client = client.clone();
                tokio::spawn(async move {
                    let key = task.to_string().into_bytes();
                    for round in 0..200u32 {
                        let value = format!("{task} {round}").into_bytes();
                        client.set(&key, &value).await.unwrap();
                        let reply = client.call(&[b"GET", &key]).await.unwrap();
                        assert_eq!(reply, Frame::Bulk(value));
                    }
                    let both = client.with(move |client: &mut Client| {
                        client.set(b"both", &key)?;
                        client.get(b"both").map(|value| (key, value))
                    });
                    let (key, value) = both.await.unwrap().unwrap();
                    assert_eq!(value, Some(key), "another task's write came between");
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// A transaction that a task has left open takes no other task's requests in silence: they fail,
/// and it is given up. Nobody can wait for the client within what is done with the client.
#[test]
fn a_transaction_that_is_left_open_is_given_up() {
    let server = Server::start(Manner::default());
    run(async {
        let client = connect(&server, ClientOptions::default()).await;
        let lost = client.call(&[b"LATER", b"queued"]).await.unwrap_err();
        assert!(lost.to_string().contains("LATER: a MULTI was left open"), "{lost}");
        assert!(client.set(b"queued", b"1").await.is_err());
        client.set(b"key", b"value").await.unwrap();
        assert_eq!(client.get(b"key").await.unwrap(), Some(b"value".to_vec()));
        let (of_task, here) = (client.clone(), tokio::runtime::Handle::current());
        let within = client.with(move |_| here.block_on(of_task.set(b"key", b"other"))).await;
        assert!(matches!(within.unwrap(), Err(CallError::WouldWait)));
    });
}

/// A panic in what is done with the client is that task's alone.
#[test]
fn a_panic_is_the_task_s_own() {
    let server = Server::start(Manner::default());
    run(async {
        let client = connect(&server, ClientOptions::default()).await;
        let of_task = client.clone();
        let panics = tokio::spawn(async move { of_task.with(|_| panic!("a mistake")).await });
        assert!(panics.await.unwrap_err().is_panic());
        client.set(b"key", b"value").await.unwrap();
        assert_eq!(client.get(b"key").await.unwrap(), Some(b"value".to_vec()));
    });
}

/// When the server ends, each request says whether it may have happened; a later one reaches the
/// next server, and no read shows what the last one has left.
#[test]
fn tasks_are_told_that_the_server_ended() {
    let mut server = Server::start(Manner { dies_at: Some(b"DEL"), ..Manner::default() });
    run(async {
        let client = connect(&server, ClientOptions::default()).await;
        client.set(b"key", b"old").await.unwrap();
        let lost = client.del(&[b"key"]).await.unwrap_err();
        assert!(matches!(&lost, CallError::Unknown { command, .. } if command == "DEL"), "{lost}");
        server.end();
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(20)))
            .await
            .unwrap();
        assert!(matches!(client.get(b"key").await, Err(CallError::NotAttached { .. })));
        let nobody = AsyncClient::connect_with(&server.address(), ClientOptions::default()).await;
        assert!(matches!(nobody, Err(CallError::NotAttached { .. })));
        server.listen();
        for _ in 0..1000 {
            if client.set(b"key", b"new").await.is_ok() {
                break;
            }
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1)))
                .await
                .unwrap();
        }
        assert_eq!(client.get(b"key").await.unwrap(), Some(b"new".to_vec()));
        assert!(client.is_local());
    });
}

/// A file is cut off under its readers, and the server lives: tasks ask it, and soon read its
/// memory again. They asked for ever, since the client's thread itself reads no memory.
#[test]
fn tasks_read_memory_again_behind_memory_that_is_over() {
    let server = Server::start(Manner::default());
    run(async {
        let first = server.hand_out("first", b"1");
        let client = connect(&server, ClientOptions::default()).await;
        assert_eq!(client.get(b"a").await.unwrap(), Some(b"1".to_vec()));
        server.hand_out("second", b"2");
        first.set_len(0).unwrap();
        let begin = Instant::now();
        while client.get(b"a").await.unwrap() != Some(b"2".to_vec()) || !client.is_local() {
            assert!(begin.elapsed() < Duration::from_secs(5), "it isn't local again");
        }
        server.asked();
        assert_eq!(client.get(b"a").await.unwrap(), Some(b"2".to_vec()));
        assert_eq!(server.asked(), [""; 0]);
    });
}

/// A panic in what is called while a request waits ended the client's thread, and with it each task
/// that used the client. The requests that have no reply say so, and the client goes on.
#[test]
fn a_panic_while_the_thread_waits_ends_no_task() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    let server = Server::start(Manner::default());
    let while_waiting: Option<fn() -> bool> = Some(|| {
        assert!(!PANICS.load(Relaxed), "a mistake");
        true
    });
    let connection = ConnectionOptions { while_waiting, ..ConnectionOptions::default() };
    run(async {
        let options = ClientOptions { connection, ..ClientOptions::default() };
        let client = connect(&server, options).await;
        client.set(b"key", b"value").await.unwrap();
        PANICS.store(true, Relaxed);
        server.manner.lock().unwrap().ignores = Some(b"SET");
        let lost = client.set(b"key", b"other").await.unwrap_err();
        PANICS.store(false, Relaxed);
        server.manner.lock().unwrap().ignores = None;
        let expected = matches!(&lost, CallError::Unknown { command, .. } if command == "SET");
        assert!(expected && lost.to_string().contains("has panicked"), "{lost}");
        assert_eq!(client.call(&[b"PING"]).await.unwrap(), Frame::Simple(b"PONG".into()));
        client.set(b"key", b"third").await.unwrap();
        assert_eq!(client.get(b"key").await.unwrap(), Some(b"third".to_vec()));
    });
}
