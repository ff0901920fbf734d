//! A client whose process is short of descriptors, so that it gets none or some of those that local
//! access takes. It was not attached, for ever; it asks the server, and says why.
//!
//! A child has the limit (RLIMIT_NOFILE, as `ulimit -n` sets it). The server is the parent's.

use crate::support::{Manner, Server, run_child};
use nigh_client::{Address, CallError, Client, ClientOptions, LocalUse};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Names the child's server.
const SOCKET: &str = "NIGH_SHORT_OF_FILES";

#[test]
fn a_client_that_is_short_of_descriptors_asks_the_server() {
    let server = Server::start(Manner::default());
    run_child(&server, SOCKET, "short_of_files::child_with_few_descriptors");
}

/// Of the socket, a second one of it, the arena and the rings, as many fit as are free.
#[test]
#[expect(clippy::print_stderr, reason = "the parent reads it")]
fn child_with_few_descriptors() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let address = Address::unix(&socket);
    let cases = [(1, "no second descriptor"), (2, "0 descriptors came"), (3, "1 descriptors came")];
    for (free, why) in cases {
        let _limit = Limit::of(free);
        let mut client = Client::connect_with(&address, ClientOptions::default()).expect("by RESP");
        let why_not = client.why_not_local().expect("it isn't local").to_owned();
        assert!(why_not.contains(why) && why_not.contains("ulimit -n"), "{why_not}");
        client.set(b"a", why.as_bytes()).expect("the server takes requests");
        assert_eq!(client.get(b"a").expect("a reply").as_deref(), Some(why.as_bytes()));
        drop(client);
        let options = ClientOptions { local: LocalUse::Required, ..ClientOptions::default() };
        let Err(error) = Client::connect_with(&address, options) else { panic!("{why}") };
        assert!(matches!(error, CallError::NotLocal { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let _limit = Limit::of(4);
    let client = Client::connect_with(&address, ClientOptions::default()).expect("all fit");
    assert!(client.is_local(), "{:?}", client.why_not_local());
    eprintln!("all was told");
}

/// As long as it lives, this process may open so many files more.
struct Limit;

impl Limit {
    fn of(free: u64) -> Limit {
        let next = File::open("/dev/null").expect("there is no limit yet").as_raw_fd();
        Limit::set(Some(u64::try_from(next).expect("descriptors are numbers from 0 on") + free));
        Limit
    }

    fn set(current: Option<u64>) {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let current = current.or(maximum);
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("it is below the maximum");
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        Limit::set(None);
    }
}
