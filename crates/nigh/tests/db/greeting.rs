//! The library's program in docs/embedded.md, which is `examples/rust/greeting.rs`.

use crate::all;
use nigh::{Db, Options};
use std::path::Path;
use std::process::Command;

/// There if this is the child.
const IS_CHILD: &str = "NIGH_GREETING_CHILD";

/// The program as it stands there.
#[expect(clippy::print_stdout, reason = "the program says something")]
mod program {
    include!("../../../../examples/rust/greeting.rs");

    pub(super) fn run() {
        main().expect("it ends well");
    }
}

#[test]
fn child_is_the_program() {
    if std::env::var_os(IS_CHILD).is_some() {
        program::run();
    }
}

#[test]
fn the_example_says_hello_and_leaves_its_keys() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "greeting::child_is_the_program", "--nocapture"]).env(IS_CHILD, "1");
    let output = command.current_dir(dir.path()).output().expect("a child");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("hello\n"), "{output:?}");
    let db = Db::open(dir.path().join("data"), &Options::new()).expect("it was closed");
    let wanted = [(&b"greeting"[..], &b"hello"[..]), (b"order", b"paid")];
    assert_eq!(all(&db), wanted.map(|(key, value)| (key.to_vec(), value.to_vec())));
}

#[test]
fn the_page_shows_the_example() {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(checkout.join(name)).expect("a file");
    let example = format!("```rust\n{}```\n", read("examples/rust/greeting.rs"));
    assert!(read("docs/embedded.md").contains(&example), "the page shows another program");
}
