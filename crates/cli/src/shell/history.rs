//! The lines typed before, in files of `$XDG_STATE_HOME/nigh` (`~/.local/state/nigh` by default).
//!
//! Invariant: only the file's owner can read it.

use anyhow::{Context, Result};
use rustyline::Editor;
use rustyline::history::FileHistory;
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The path of the history with this name; `None` without a home.
pub(super) fn path(name: &str) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("nigh").join(name))
}

/// Writes the history.
pub(super) fn save<H: rustyline::Helper>(
    editor: &mut Editor<H, FileHistory>,
    path: &Path,
) -> Result<()> {
    let failed = || format!("can't write the history to {}", path.display());
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory).with_context(failed)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).with_context(failed)?;
    editor.save_history(path).with_context(failed)
}

/// Whether a line holds a password.
pub(super) fn is_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let mut words = line.split_whitespace();
    match words.next() {
        Some("auth") => true,
        Some("hello") => words.any(|word| word == "auth"),
        Some("config") => words.any(|word| word.trim_matches(['"', '\'']) == "requirepass"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passwords stay out of the history file, in every form that a user may type.
    #[test]
    fn passwords_are_not_kept() {
        for line in ["AUTH x", " auth u x", "HELLO 3 AUTH u x", "config set requirepass x"] {
            assert!(is_secret(line), "{line}");
        }
        for line in ["GET auth", "HELLO 3", "", "CONFIG GET maxmemory"] {
            assert!(!is_secret(line), "{line}");
        }
    }
}
