//! The library as a user has it: installed, found by pkg-config, and linked by C and C++.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compilers, and the language's version.
pub(crate) const COMPILERS: [(&str, &[&str]); 2] =
    [("gcc", &["-std=c99"]), ("g++", &["-std=c++11", "-x", "c++"])];

pub(crate) fn checkout() -> PathBuf {
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
pub(crate) struct Installed {
    dir: tempfile::TempDir,
}

impl Installed {
    pub(crate) fn new() -> Installed {
        let dir = tempfile::tempdir().expect("a folder");
        // Cargo puts the libraries beside the tests.
        let own = std::env::current_exe().expect("this program");
        let script = checkout().join("scripts/install-c.sh");
        run(Command::new(script).arg(own.parent().expect("a folder")).arg(dir.path()));
        Installed { dir }
    }

    pub(crate) fn lib(&self) -> PathBuf {
        self.dir.path().join("lib")
    }

    pub(crate) fn pkg_config(&self, question: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(question).arg("nigh").env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        run(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program and runs it in a folder of its own. Returns what it says.
    pub(crate) fn try_out<S: AsRef<OsStr>>(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &Path,
        libs: &[S],
    ) -> String {
        let program = self.compile(compiler, flags, source, libs);
        run(&mut self.command(&program))
    }

    /// Compiles a program, in a folder of its own.
    pub(crate) fn compile<S: AsRef<OsStr>>(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &Path,
        libs: &[S],
    ) -> PathBuf {
        let dir = tempfile::tempdir_in(self.dir.path()).expect("a folder").keep();
        let program = dir.join("program");
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]).args(flags);
        command.args(self.pkg_config(&["--cflags"])).arg(source).args(["-x", "none"]).args(libs);
        run(command.arg("-o").arg(&program));
        program
    }

    /// Runs a program in its folder.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let dir = program.parent().expect("a folder");
        command.current_dir(dir).env("LD_LIBRARY_PATH", self.lib());
        command
    }
}
