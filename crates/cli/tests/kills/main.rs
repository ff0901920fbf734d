//! SIGKILL under load: what was answered is there. A program of its own, since its loads are heavy:
//! beside other stories they would slow each other down.

#[path = "../cli/support/mod.rs"]
mod support;

mod kill;
mod kill_full;
mod kill_log;
mod kill_many;
