//! A server in a PID namespace and a user namespace of its own, as in a container: its clients'
//! processes have no number there, and it has no right that goes beyond its limits.

use super::{Host, SOON};
use crate::support::local::{LocalClient, ask_to_attach};
use nigh_client::{Address, Client, ClientOptions, Frame, LocalUse};
use nigh_resp::encode;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// A server in namespaces of its own, which may open so many files; `None` where the system allows
/// none.
fn start(files: usize, flags: &[&str]) -> Option<Host> {
    let mut program = Command::new("unshare");
    program.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
    program.args(["sh", "-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]);
    match Host::start_by(program, flags) {
        Ok(host) => Some(host),
        Err(said) => {
            assert!(said.contains("unshare:"), "it ended: {said}");
            eprintln!("namespaces aren't allowed here: this story is left out: {said}");
            None
        }
    }
}

#[test]
fn a_client_whose_process_has_no_number_at_the_server_attaches() {
    // The server's PID namespace is below the client's, so the system tells it no number of the
    // client's process. The client attaches and is listed without one. The end of its socket is
    // its end.
    let Some(host) = start(1024, &["--shards", "1"]) else { return };
    let mut client = host.attach();
    assert_eq!(client.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
    let listed = client.text(&["LOCAL", "LIST"]);
    assert!(listed.lines().count() == 1 && listed.contains(" pid=- "), "{listed}");
    drop(client);
    host.server.wait_for_info("local_clients:0\r\n");
    assert!(LocalClient::attach(&host.path, &[]).is_ok(), "others may come");
}

#[test]
fn descriptors_that_nobody_reads_let_others_be_refused_in_words() {
    // Clients attach and don't read what they are given. The system bounds what is under way for a
    // user by the limit of open files. The next client is told so, and its connection goes on; one
    // that may do without attaching is served by requests. When the others are gone, it attaches.
    let (files, arenas) = (256, 8);
    let Some(host) = start(files, &["--shards", "1", "--partitions", "8"]) else { return };
    let mut request = Vec::new();
    encode::request(&mut request, ["LOCAL", "ATTACH", "1"]);
    let (began, mut lazy) = (Instant::now(), Vec::new());
    // One after the other: what is given to each is the server's until it is sent.
    while lazy.len() <= files / (arenas + 1) {
        let mut socket = UnixStream::connect(&host.path).expect("it listens");
        socket.write_all(&request).expect("it reads");
        lazy.push(socket);
        while usize::try_from(host.figures("attached")) != Ok(lazy.len()) {
            assert!(began.elapsed() < SOON, "they attach");
        }
    }
    let mut socket = UnixStream::connect(&host.path).expect("it listens");
    let (reply, given, _) = ask_to_attach(&mut socket, &[&["LOCAL", "ATTACH", "1"]]);
    let said = String::from_utf8_lossy(reply.error().expect("an error")).into_owned();
    assert!(said.contains("no more descriptors be under way") && given.is_empty(), "{said}");
    let (pong, ..) = ask_to_attach(&mut socket, &[&["PING"]]);
    assert_eq!(pong, Frame::Simple(b"PONG".to_vec()), "it goes on");
    let options = ClientOptions { local: LocalUse::Auto, ..ClientOptions::default() };
    let mut client = Client::connect_with(&Address::unix(&host.path), options).expect("served");
    client.set(b"k", b"v").expect("room");
    assert_eq!(client.get(b"k").expect("an answer").as_deref(), Some(&b"v"[..]));
    drop((lazy, client));
    while LocalClient::attach(&host.path, &[]).is_err() {
        assert!(began.elapsed() < SOON, "what was under way has gone");
        std::thread::sleep(Duration::from_millis(5));
    }
}
