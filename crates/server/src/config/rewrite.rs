//! CONFIG REWRITE: what CONFIG SET has changed is written into the settings file.
//!
//! ```text
//! FILE ── read, changed keys set ──> FILE.new ── fsync ── rename to FILE ── fsync of the folder
//! ```
//!
//! 1. Whenever it is cut off, FILE has the old text or the new one, whole. When it returns well,
//!    the new one survives a power cut.
//! 2. Only settings that CONFIG SET may change are written, and of those only the ones whose value
//!    isn't what the file gives. All else, comments too, stays.
//! 3. The new file has the old one's permissions before it has its name. A link stays a link: the
//!    file behind it is replaced.
//!
//! Called by one thread at a time: under the lock of the settings.

use super::{Config, SettingKind, Value, load, settings};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use toml_edit::{DocumentMut, value};

/// Mode of a file that is made: it may have a password.
const MODE: u32 = 0o600;

/// Writes the settings that differ from the file's into the file. How many those are. An error is a
/// part of a sentence: what couldn't be done, and why.
pub(crate) fn rewrite(config: &Config, path: &Path) -> Result<usize, String> {
    let failed = |doing: &str, cause: &dyn std::fmt::Display| {
        format!("{doing} {} failed: {cause}", path.display())
    };
    let mut of_file = Config::default();
    load(&mut of_file, path).map_err(|error| error.to_string())?;
    let text = std::fs::read_to_string(path).map_err(|error| failed("reading", &error))?;
    let mut document: DocumentMut = text.parse().map_err(|error| failed("reading", &error))?;
    let changed: Vec<_> = settings()
        .iter()
        .filter(|row| row.mutable && config.value(row.name) != of_file.value(row.name))
        .collect();
    if changed.is_empty() {
        return Ok(0);
    }
    for row in &changed {
        // A name may be written in any case.
        let key =
            document.iter().map(|(key, _)| key).find(|key| key.eq_ignore_ascii_case(row.name));
        let key = key.unwrap_or(row.name).to_owned();
        let is_secret = matches!(row.kind, SettingKind::Secret(_));
        let new = match config.value(row.name) {
            Value::Number(number) if !is_secret => value(*number),
            Value::Flag(flag) => value(*flag),
            other => value(other.to_string()),
        };
        match document.get_mut(&key).and_then(|item| item.as_value_mut()) {
            // With the comment behind it.
            Some(there) => {
                let decor = there.decor().clone();
                if let Ok(mut new) = new.into_value() {
                    *new.decor_mut() = decor;
                    *there = new;
                }
            }
            None => document[&key] = new,
        }
    }
    replace(path, document.to_string().as_bytes()).map_err(|error| failed("writing", &error))?;
    Ok(changed.len())
}

/// Gives a file other bytes, durably, and whole at any time.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = path.canonicalize()?;
    let folder = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let mut name = path.file_name().ok_or(io::ErrorKind::NotFound)?.to_owned();
    name.push(".new");
    let new = folder.join(name);
    // One that was cut off left it.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    let written = (|| {
        file.set_permissions(path.metadata()?.permissions())?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&new, &path)
    })();
    if let Err(error) = written {
        let _ = std::fs::remove_file(&new);
        return Err(error);
    }
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const TEXT: &str = "# ours\nport = 7000 # fixed\nmaxclients = 50 # few\n";

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nigh.toml");
        std::fs::write(&path, text).expect("a file");
        (folder, path)
    }

    fn names(folder: &Path) -> usize {
        std::fs::read_dir(folder).expect("readable").count()
    }

    /// What was changed is in the file and loads; what wasn't, comments too, stays as it was.
    #[test]
    fn changed_settings_are_written_and_all_else_stays() {
        let (folder, path) = file(TEXT);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("ours");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let mut config = Config::default();
        load(&mut config, &link).expect("it loads");
        assert_eq!(rewrite(&config, &link), Ok(0), "nothing has changed");
        for (name, text) in [
            ("maxclients", "70"),
            ("requirepass", "12 \"quotes\"\\ and 'more'\u{1}"),
            ("protected-mode", "no"),
            ("appendfsync", "always"),
            ("proto-max-bulk-len", "2mb"),
        ] {
            config.set(name, text).expect("a right setting");
        }
        assert_eq!(rewrite(&config, &link), Ok(5));
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert!(text.starts_with("# ours\nport = 7000 # fixed\nmaxclients = 70 # few"), "{text}");
        let mut again = Config::default();
        load(&mut again, &path).expect("it loads");
        for row in settings() {
            assert_eq!(again.value(row.name), config.value(row.name), "{}", row.name);
        }
        assert!(link.symlink_metadata().expect("it is there").is_symlink());
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!((mode & 0o777, names(folder.path())), (0o640, 2));
        assert_eq!(rewrite(&config, &path), Ok(0), "all is written");
    }

    /// A file that can't be read as settings, or a folder that can't be written, is left alone.
    #[test]
    fn a_file_that_cannot_be_written_stays_and_is_named() {
        let (folder, path) = file("nosuch = 1\n");
        let mut config = Config::default();
        config.set("maxclients", "70").expect("a number");
        let error = rewrite(&config, &path).expect_err("an unknown setting");
        assert!(error.contains("nosuch"), "{error}");
        std::fs::write(&path, TEXT).expect("ours");
        // A folder in the way of the new file stops root too.
        std::fs::create_dir(folder.path().join("nigh.toml.new")).expect("ours");
        let error = rewrite(&config, &path).expect_err("no room for the new file");
        assert!(error.contains("nigh.toml"), "{error}");
        let text = std::fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, TEXT);
    }
}
