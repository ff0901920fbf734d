//! What a program that uses the library has to build.

use std::process::Command;

/// The crates on which `nigh` stands, also while it is built.
fn crates_below(features: &[&str]) -> Vec<String> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["tree", "-p", "nigh", "-e", "normal,build", "--prefix", "none"]).args(features);
    command.args(["--locked", "--offline"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).expect("names");
    let names = said.lines().map(|line| line.split(' ').next().unwrap_or_default());
    names.map(str::to_owned).collect()
}

/// A program that only keeps data would have to find V8, and would be large.
#[test]
fn without_functions_the_library_needs_no_v8() {
    let has = |names: &[String], name: &str| names.iter().any(|it| it == name);
    let (usual, all) = (crates_below(&[]), crates_below(&["--features", "functions"]));
    assert!(has(&usual, "nigh-store") && has(&all, "nigh-js"), "{usual:?} {all:?}");
    for name in ["nigh-js", "nigh-resp", "nigh-server"] {
        assert!(!has(&usual, name), "{name}: {usual:?}");
    }
}
