//! A user installs the library, finds it by pkg-config, and compiles programs as C and as C++.
//! Warnings are errors.

mod support;

use std::path::Path;
use std::process::Command;
use support::{COMPILERS, Installed, checkout};

#[test]
fn programs_in_c_and_cpp_find_the_library_and_use_all_of_it() {
    let installed = Installed::new();
    assert_eq!(installed.pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let calls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/calls.c");
    let little = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/little_memory.c");
    let greeting = checkout().join("examples/c/greeting.c");
    let libs = installed.pkg_config(&["--libs"]);
    for (compiler, flags) in COMPILERS {
        assert_eq!(installed.try_out(compiler, flags, &greeting, &libs), "hello\n");
        assert_eq!(installed.try_out(compiler, flags, &calls, &libs), "all is well\n");
        assert_eq!(installed.try_out(compiler, flags, &little, &libs), "all was told\n");
    }
    // Without the shared library.
    let libs = installed.pkg_config(&["--static", "--libs"]);
    let libs: Vec<_> = libs.iter().map(|lib| lib.replace("-lnigh", "-l:libnigh.a")).collect();
    std::fs::remove_file(installed.lib().join("libnigh.so")).expect("it is there");
    assert_eq!(installed.try_out("gcc", &["-std=c99"], &greeting, &libs), "hello\n");
}

/// A program that opened a reader and closed the library left a handler for SIGBUS behind that was
/// no code any more: the next SIGBUS anywhere ended in it.
#[test]
fn the_library_stays_in_memory_behind_dlclose() {
    let installed = Installed::new();
    let library = installed.lib().join("libnigh.so");
    let told = Command::new("readelf").arg("-d").arg(library).output().expect("it is binutils'");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("NODELETE"), "{told}");
}

#[test]
fn the_page_shows_the_example() {
    let read = |name: &str| std::fs::read_to_string(checkout().join(name)).expect("a file");
    let example = format!("```c\n{}```\n", read("examples/c/greeting.c"));
    assert!(
        read("docs/embedded.md").contains(&example),
        "the page shows another examples/c/greeting.c"
    );
}
