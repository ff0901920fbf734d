//! stdout: where all commands write their results. stderr: what they say beside those.
//!
//! ```text
//! say! ──┐                       ┌── closed by its reader (`nigh … | head`): the end, without a word
//! Output ┴──> stdout ── an error ┴── else: one sentence on stderr
//! tell! ────> stderr ── an error ─── the line is lost, and the command goes on
//! ```
//!
//! 1. No command panics since nobody reads what it says.
//! 2. `say!` ends the process, so it is for commands that leave nothing half done behind a line.
//!    Where a database is open, [`Output`] gives the error, and the database is closed first.

use crate::target::in_flags;
use std::error::Error;
use std::fmt::{self, Arguments, Display, Formatter};
use std::io::{self, ErrorKind, IsTerminal, StdoutLock, Write};
use std::process::ExitCode;

/// The exit code when the reader of stdout has gone: a shell tells the same of programs that the
/// signal for it ends.
const CLOSED: u8 = 141;

/// Writes a line to stdout, as `println!` does.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::line(format_args!($($text)*))
    };
}
pub(crate) use say;

/// Writes a line to stderr. `eprintln!` would panic if nobody reads it.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::output::aside(format_args!($($text)*))
    };
}
pub(crate) use tell;

/// For [`tell!`].
pub(crate) fn aside(text: Arguments<'_>) {
    // There is no other place to say that nobody reads.
    let _ = writeln!(io::stderr(), "{text}");
}

/// An error with its causes, but for those that the text before them tells already. What the
/// library says of a program's options, it says of flags.
pub(crate) fn whole_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match text.as_str() {
            "" => text = cause,
            before if before.contains(&cause) => {}
            _ => text = format!("{text}: {cause}"),
        }
    }
    in_flags(&text)
}

/// For [`say!`].
pub(crate) fn line(text: Arguments<'_>) {
    if let Err(error) = writeln!(Output::new(), "{text}") {
        let code = if is_closed(&error) { CLOSED.into() } else { 1 };
        if code == 1 {
            tell!("nigh: {error}");
        }
        std::process::exit(code);
    }
}

/// stdout, whose errors are known as such.
pub(crate) struct Output(StdoutLock<'static>);

impl Output {
    pub(crate) fn new() -> Output {
        Output(io::stdout().lock())
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_stdout)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_stdout)
    }
}

/// An error of stdout.
#[derive(Debug)]
struct OutputFault(io::Error);

impl Display for OutputFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "can't write to stdout: {}", self.0)
    }
}

impl Error for OutputFault {}

fn of_stdout(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::Interrupted => error, // it is tried again
        kind => io::Error::new(kind, OutputFault(error)),
    }
}

/// Whether the reader of stdout has gone.
fn is_closed(error: &io::Error) -> bool {
    let is_of_stdout = error.get_ref().is_some_and(|it| it.is::<OutputFault>());
    is_of_stdout && error.kind() == ErrorKind::BrokenPipe
}

/// How a command ends whose cause is that the reader of stdout has gone; `None`: there is another.
pub(crate) fn end_of(error: &anyhow::Error) -> Option<ExitCode> {
    let mut causes = error.chain().filter_map(|it| it.downcast_ref::<io::Error>());
    causes.any(is_closed).then(|| ExitCode::from(CLOSED))
}
