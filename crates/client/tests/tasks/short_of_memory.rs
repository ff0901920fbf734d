//! Tasks whose process may take little memory read values that don't fit, or just once. The copies
//! for tasks were made without a question, and the allocator ended the process (SIGABRT). And the
//! server was asked three times for a reply that doesn't fit, which each time ended the connection
//! of all tasks.
//!
//! A child has the limit (RLIMIT_AS, as `ulimit -v` sets it). The server is the parent's.

use crate::run;
use crate::support::{Manner, Server, limit, run_child};
use nigh_client::{Address, AsyncClient, CallError, ClientOptions, LocalUse};
use std::time::Duration;

/// Names the child's server.
const SOCKET: &str = "NIGH_TASKS_SHORT_OF_MEMORY";
/// Until requests that wait have become one pipeline.
const TOGETHER: Duration = Duration::from_millis(50);
/// Of a value.
const LONG_BYTES: usize = 8 << 20;

#[test]
fn a_value_that_doesnt_fit_into_memory_is_a_tasks_error() {
    let server = Server::start(Manner::default());
    server.owner().put(b"long", &vec![7; LONG_BYTES], 0);
    server.owner().put(b"short", b"hello", 0);
    run_child(&server, SOCKET, "short_of_memory::child_with_little_memory");
}

#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_with_little_memory() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    run(async {
        for local in [LocalUse::Auto, LocalUse::Never] {
            let options = ClientOptions { local, ..ClientOptions::default() };
            meets_a_long_value(&Address::unix(&socket), &options).await;
        }
        two_meet_a_long_value(&Address::unix(&socket)).await;
    });
    eprintln!("all was told");
}

/// From room for no copy of it to room for all of them: there is each error on the way.
async fn meets_a_long_value(address: &Address, options: &ClientOptions) {
    let (mut errors, mut long_ones) = (0, 0);
    for more_bytes in (4..56).step_by(4).map(|mib| mib << 20) {
        for is_alone in [true, false] {
            let client = AsyncClient::connect_with(address, options.clone()).await;
            let client = client.expect("there is memory again");
            limit(Some(more_bytes));
            let found = match is_alone {
                true => client.get(b"long").await,
                false => {
                    client.multi_get(&[b"short", b"long"]).await.map(|mut both| both.remove(1))
                }
            };
            let short = client.get(b"short").await.expect("the client goes on");
            assert_eq!(short.as_deref(), Some(&b"hello"[..]));
            limit(None);
            let attached = client.with(|client| client.link_number()).await;
            assert!(attached.expect("its thread") <= 2, "it was asked for again");
            match found {
                Ok(value) => {
                    assert_eq!(value.map(|value| value.len()), Some(LONG_BYTES));
                    long_ones += 1;
                }
                Err(error) => {
                    let is_told = error.to_string().contains("no memory for");
                    assert!(is_told && !matches!(error, CallError::Unknown { .. }), "{error}");
                    errors += 1;
                }
            }
        }
    }
    assert!(errors > 0 && long_ones > 0, "{errors} errors, {long_ones} values");
}

/// Two tasks read it in one pipeline, where there is room for one copy alone: the second one, which
/// comes while the first is kept, is asked for again by itself.
async fn two_meet_a_long_value(address: &Address) {
    let options = ClientOptions { local: LocalUse::Never, ..ClientOptions::default() };
    let mut came_again = 0;
    for more_bytes in (4..56).step_by(2).map(|mib| mib << 20) {
        let client = AsyncClient::connect_with(address, options.clone()).await;
        let client = client.expect("there is memory again");
        let of_task = client.clone();
        let held =
            tokio::spawn(async move { of_task.with(|_| std::thread::sleep(TOGETHER)).await });
        std::thread::sleep(TOGETHER / 5);
        limit(Some(more_bytes));
        let tasks = [(), ()].map(|()| {
            let client = client.clone();
            tokio::spawn(async move {
                let value = client.get(b"long").await;
                value.map(|value| value.expect("it is there").len())
            })
        });
        let mut both = 0;
        for task in tasks {
            match task.await.expect("no panic") {
                Ok(len) => both += len / LONG_BYTES,
                Err(error) => assert!(error.to_string().contains("no memory for"), "{error}"),
            }
        }
        limit(None);
        held.await.expect("no panic").expect("its thread");
        let attached = client.with(|client| client.link_number()).await.expect("its thread");
        came_again += u32::from(both == 2 && attached > 1);
    }
    assert!(came_again > 0, "what lacked memory beside another was given up");
}
