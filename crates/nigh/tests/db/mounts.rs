//! Tests of this program that run in a child, with mounts of its own.

use std::ffi::OsStr;
use std::process::Command;

/// What a child says at its end.
pub(crate) const DONE: &str = "all was done with mounts of its own";

/// Runs a script, which mounts and then runs this test by `exec "$0" "$@"`, with these variables,
/// where one may mount.
#[expect(clippy::print_stderr, reason = "nobody would know that nothing is tested")]
pub(crate) fn in_own_mounts(script: &str, test: &str, variables: &[(&str, &OsStr)]) {
    let own = std::env::current_exe().expect("this program");
    let way = match rustix::process::geteuid().is_root() {
        true => &["--mount"][..],
        false => &["--user", "--map-root-user", "--mount"][..],
    };
    let mut command = Command::new("unshare");
    command.args(way).args(["sh", "-c", script]).arg(own).args(["--exact", test, "--nocapture"]);
    let output = command.envs(variables.iter().copied()).output();
    let output = output.expect("unshare of util-linux");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.starts_with("unshare:") || said.starts_with("mount:") {
        eprintln!("mounting isn't allowed: nothing is tested");
        return;
    }
    assert!(output.status.success() && said.contains(DONE), "{said}");
}
