//! A user installs the library, finds it by pkg-config, and compiles programs as C and as C++.
//! Warnings are errors.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command that succeeds. Returns what it says.
fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}{err}", done.status);
    out.into_owned()
}

/// The library, installed.
struct Installed {
    dir: tempfile::TempDir,
}

impl Installed {
    fn new() -> Installed {
        let dir = tempfile::tempdir().expect("a folder");
        // Cargo puts the libraries beside the tests.
        let own = std::env::current_exe().expect("this program");
        let script = checkout().join("scripts/install-c.sh");
        run(Command::new(script).arg(own.parent().expect("a folder")).arg(dir.path()));
        Installed { dir }
    }

    fn lib(&self) -> PathBuf {
        self.dir.path().join("lib")
    }

    fn pkg_config(&self, question: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(question).arg("nigh").env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        run(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program and runs it in a folder of its own. Returns what it says.
    fn try_out<S: AsRef<OsStr>>(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &Path,
        libs: &[S],
    ) -> String {
        let dir = tempfile::tempdir_in(self.dir.path()).expect("a folder");
        let program = dir.path().join("program");
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]).args(flags);
        command.args(self.pkg_config(&["--cflags"])).arg(source).args(["-x", "none"]).args(libs);
        run(command.arg("-o").arg(&program));
        run(Command::new(program).current_dir(dir.path()).env("LD_LIBRARY_PATH", self.lib()))
    }
}

#[test]
fn programs_in_c_and_cpp_find_the_library_and_use_all_of_it() {
    let installed = Installed::new();
    assert_eq!(installed.pkg_config(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let calls = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/calls.c");
    let greeting = checkout().join("examples/c/greeting.c");
    let libs = installed.pkg_config(&["--libs"]);
    let compilers: [(&str, &[&str]); 2] =
        [("gcc", &["-std=c99"]), ("g++", &["-std=c++11", "-x", "c++"])];
    for (compiler, flags) in compilers {
        assert_eq!(installed.try_out(compiler, flags, &greeting, &libs), "hello\n");
        assert_eq!(installed.try_out(compiler, flags, &calls, &libs), "all is well\n");
    }
    // Without the shared library.
    let archive = installed.lib().join("libnigh.a").display().to_string();
    let others = installed.pkg_config(&["--static", "--libs"]);
    let others = others.into_iter().filter(|lib| lib != "-lnigh");
    let libs: Vec<String> = std::iter::once(archive).chain(others).collect();
    std::fs::remove_file(installed.lib().join("libnigh.so")).expect("it is there");
    assert_eq!(installed.try_out("gcc", &["-std=c99"], &greeting, &libs), "hello\n");
}

#[test]
fn the_readme_shows_the_example() {
    let read = |name: &str| std::fs::read_to_string(checkout().join(name)).expect("a file");
    let example = format!("```c\n{}```\n", read("examples/c/greeting.c"));
    assert!(read("README.md").contains(&example), "README.md shows another examples/c/greeting.c");
}
