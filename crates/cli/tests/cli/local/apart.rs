//! A server in a PID namespace and a user namespace of its own, as in a container: its clients'
//! processes have no number there, and it has no right that goes beyond its limits.

use super::Host;
use crate::support::local::LocalClient;
use nigh_client::Frame;
use std::process::Command;

/// A server in namespaces of its own; `None` where the system allows none.
fn start(flags: &[&str]) -> Option<Host> {
    let mut program = Command::new("unshare");
    program.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
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
    let Some(host) = start(&["--shards", "1"]) else { return };
    let mut client = host.attach();
    assert_eq!(client.call(&["PING"]), Frame::Simple(b"PONG".to_vec()));
    let listed = client.text(&["LOCAL", "LIST"]);
    assert!(listed.lines().count() == 1 && listed.contains(" pid=- "), "{listed}");
    drop(client);
    host.server.wait_for_info("local_clients:0\r\n");
    assert!(LocalClient::attach(&host.path, &[]).is_ok(), "others may come");
}
