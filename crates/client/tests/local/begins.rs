//! How a client begins: servers that aren't ready or let nobody in, and waits without an end.

use crate::support::{Manner, Server};
use nigh_client::{Address, CallError, Client, ClientOptions, ConnectionOptions, LocalUse};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const USES: [LocalUse; 3] = [LocalUse::Auto, LocalUse::Required, LocalUse::Never];

/// A server reads its log as clients come. They wait for it as long as they may, and say so else.
#[test]
fn a_server_that_reads_its_log_is_waited_for() {
    let server = Server::start(Manner { is_loading: true, ..Manner::default() });
    let options = |local, wait| ClientOptions { local, wait, ..ClientOptions::default() };
    for local in USES {
        let early = Client::connect_with(&server.address(), options(local, Duration::ZERO));
        let Err(error) = early else { panic!("it isn't ready") };
        assert!(matches!(error, CallError::NotAttached { .. }), "{error}");
        assert!(error.to_string().contains("LOADING"), "{error}");
    }
    std::thread::scope(|scope| {
        let address = server.address();
        let clients = USES.map(|local| {
            let options = options(local, Duration::from_secs(20));
            let address = address.clone();
            scope.spawn(move || Client::connect_with(&address, options)?.set(b"a", b"1"))
        });
        std::thread::sleep(Duration::from_millis(150));
        assert!(!clients.iter().any(|it| it.is_finished()), "they wait");
        server.manner.lock().unwrap().is_loading = false;
        for client in clients {
            client.join().unwrap().unwrap();
        }
    });
}

/// A server that has too many clients, or takes none of another host, says so in place of its first
/// reply, and closes the connection. The client took itself for attached, so each call sent its
/// request to nobody, and its error said that the reply was lost. It waits for a place as long as
/// it may; that it comes from another host lasts, and is told at once.
#[test]
fn a_server_that_turns_clients_away_is_not_attached_to() {
    let too_many = Some("ERR max number of clients reached");
    let server = Server::start(Manner { turns_away: too_many, ..Manner::default() });
    let options = |local, wait| ClientOptions { local, wait, ..ClientOptions::default() };
    let wait = Duration::from_secs(20);
    for local in USES {
        server.manner.lock().unwrap().turns_away = too_many;
        let full = Client::connect_with(&server.address(), options(local, Duration::ZERO));
        let Err(error) = full else { panic!("there is no place") };
        assert!(matches!(error, CallError::NotAttached { .. }), "{error}");
        assert!(error.to_string().contains("ERR max number of clients reached"), "{error}");
        std::thread::scope(|scope| {
            let mut client = Client::unattached(&server.address(), options(local, wait)).unwrap();
            let writes = scope.spawn(move || client.set(b"a", b"1"));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!writes.is_finished(), "it waits for a place");
            server.manner.lock().unwrap().turns_away = None;
            writes.join().unwrap().unwrap();
        });
        server.manner.lock().unwrap().turns_away = Some("DENIED Nigh is in protected mode");
        for password in [None, Some("secret".to_owned())] {
            let connection = ConnectionOptions { password, ..ConnectionOptions::default() };
            let options = ClientOptions { connection, ..options(local, wait) };
            let Err(error) = Client::connect_with(&server.address(), options) else {
                panic!("it lets nobody in");
            };
            assert!(matches!(error, CallError::CantConnect { .. }), "{error}");
            assert!(error.to_string().contains("DENIED Nigh is in protected mode"), "{error}");
        }
    }
}

/// A wait that is as long as can be told is one without an end. It was a panic. A timeout that long
/// was an error of the first call that had to wait.
#[test]
fn the_longest_wait_is_without_an_end() {
    let mut server = Server::start(Manner::default());
    for local in USES {
        let connection =
            ConnectionOptions { timeout: Some(Duration::MAX), ..ConnectionOptions::default() };
        let wait = Duration::MAX;
        let options = ClientOptions { connection, local, wait, ..ClientOptions::default() };
        server.end();
        let mut client = Client::unattached(&server.address(), options).unwrap();
        std::thread::scope(|scope| {
            let writes = scope.spawn(|| client.set(b"a", b"1"));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!writes.is_finished(), "it waits for a server");
            server.listen();
            writes.join().unwrap().unwrap();
        });
        std::thread::scope(|scope| {
            let owner = server.owner();
            let writes = scope.spawn(|| client.set(b"a", b"2"));
            std::thread::sleep(Duration::from_millis(30));
            drop(owner);
            writes.join().unwrap().unwrap();
        });
    }
}

/// The socket is another user's. The error said to call again, which never helps; it names the
/// permission. A server may let its group in a moment after it has made its socket, so a client
/// that may wait does.
#[test]
fn a_socket_that_lets_nobody_in_is_named() {
    let server = Server::start(Manner::default());
    let Address { endpoint: nigh_client::Endpoint::Unix(path), .. } = server.address() else {
        panic!("it is a Unix socket");
    };
    set_permissions(&path, Permissions::from_mode(0o000)).expect("it is ours");
    let strangers = std::thread::spawn(move || {
        // Of this thread alone: who runs the tests may be let in everywhere.
        let mut mine = capabilities(None).expect("a thread's own");
        mine.effective.remove(CapabilitySet::DAC_OVERRIDE);
        set_capabilities(None, mine).expect("fewer may always be had");
        for wait in [Duration::ZERO, Duration::from_millis(30)] {
            let options = ClientOptions { wait, ..ClientOptions::default() };
            let mut client = Client::unattached(&server.address(), options).unwrap();
            for _ in 0..2 {
                let error = client.get(b"a").unwrap_err();
                assert!(matches!(error, CallError::NotPermitted { .. }), "{error}");
                assert!(error.to_string().contains("user may not connect to unix:"), "{error}");
                assert!(error.to_string().contains("`unixsocketperm`"), "{error}");
            }
        }
        let wait = Duration::from_secs(20);
        let options = ClientOptions { wait, ..ClientOptions::default() };
        let mut client = Client::unattached(&server.address(), options).unwrap();
        let lets_in = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            set_permissions(&path, Permissions::from_mode(0o700)).expect("it is ours");
        });
        assert_eq!(client.get(b"a").unwrap(), None);
        lets_in.join().unwrap();
    });
    strangers.join().unwrap();
}
