//! The manifest of an AOF of several files, as Redis 7 writes it into `appenddirname`.
//!
//! ```text
//! file appendonly.aof.2.base.rdb seq 2 type b     b: the base, at most one
//! file appendonly.aof.4.incr.aof seq 4 type i     i: what came after it, by rising seq
//! ```
//!
//! Lines of type `h` are history: files that only weren't removed yet.

use std::path::{Path, PathBuf};

use nigh_resp::decode::split_words;

use crate::source::open_file;

/// Longest manifest that is read.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// The end of a manifest's name.
const MANIFEST_SUFFIX: &str = ".manifest";

/// The fault of a folder or of its manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The folder or the file can't be read.
    #[error("can't read {path}: {cause}")]
    Io {
        /// The path.
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// There is none, or more than one.
    #[error(
        "{path} has {count} files named ….manifest, and must have one: pass the folder that \
         `appenddirname` names, or a file"
    )]
    Count {
        /// The folder.
        path: String,
        /// How many.
        count: usize,
    },
    /// A line that no server writes.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The manifest.
        path: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// The files of the AOF in folder `folder` (or named by the manifest at that path), in the order in
/// which they count.
///
/// # Errors
/// A [`ManifestError`].
pub fn files_of(folder: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let failed = |path: &Path, cause| ManifestError::Io { path: path.display().to_string(), cause };
    let manifest = if folder.is_dir() { manifest_in(folder)? } else { folder.to_owned() };
    let opened = open_file(&manifest).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, file) = opened.map_err(|cause| failed(&manifest, cause))?;
    let wrong = |line, what| {
        let path = manifest.display().to_string();
        ManifestError::Line { path, line, what }
    };
    if bytes > MANIFEST_BYTES_MAX {
        return Err(wrong(1, "the file is too long for a manifest"));
    }
    let text = std::io::read_to_string(file).map_err(|cause| failed(&manifest, cause))?;
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let (mut base, mut later) = (None, Vec::<(u64, PathBuf)>::new());
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, seq, kind)) = fields_of(line) else {
            return Err(wrong(at + 1, "expected 'file NAME seq NUMBER type b, h or i'"));
        };
        if name.contains('/') {
            return Err(wrong(at + 1, "a file outside of the folder"));
        }
        match kind {
            b'b' if base.is_some() => return Err(wrong(at + 1, "a second base")),
            b'b' => base = Some(folder.join(name)),
            b'i' if later.last().is_some_and(|(last, _)| *last >= seq) => {
                return Err(wrong(at + 1, "a file whose number isn't above the one before"));
            }
            b'i' => later.push((seq, folder.join(name))),
            _ => {}
        }
    }
    if base.is_none() && later.is_empty() {
        return Err(wrong(1, "it names no file"));
    }
    Ok(base.into_iter().chain(later.into_iter().map(|(_, path)| path)).collect())
}

fn manifest_in(folder: &Path) -> Result<PathBuf, ManifestError> {
    let path = folder.display().to_string();
    let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|cause| ManifestError::Io { path: path.clone(), cause })?;
    let names = entries.iter().map(std::fs::DirEntry::path);
    let mut found: Vec<_> = names
        .filter(|path| path.to_string_lossy().ends_with(MANIFEST_SUFFIX) && path.is_file())
        .collect();
    match (found.pop(), found.len()) {
        (Some(manifest), 0) => Ok(manifest),
        (manifest, more) => {
            Err(ManifestError::Count { path, count: more + usize::from(manifest.is_some()) })
        }
    }
}

/// Name, number and type: pairs in any order, names maybe quoted.
fn fields_of(line: &str) -> Option<(String, u64, u8)> {
    let words = split_words(line.as_bytes()).ok()?;
    let (mut name, mut seq, mut kind) = (None, None, None);
    if words.len() % 2 != 0 {
        return None;
    }
    for pair in words.chunks_exact(2) {
        let value = String::from_utf8(pair[1].to_vec()).ok()?;
        match pair[0].as_slice() {
            b"file" => name = Some(value),
            b"seq" => seq = Some(value.parse().ok()?),
            b"type" => {
                kind = [b'b', b'h', b'i'].into_iter().find(|kind| value.as_bytes() == [*kind])
            }
            _ => {} // a newer server may say more
        }
    }
    Some((name?, seq?, kind?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, ManifestError> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.manifest"), text).expect("it is ours");
        let names = files_of(folder.path())?;
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into());
        Ok(names.iter().filter_map(name).collect())
    }

    /// The base comes first, history doesn't count, names may be quoted.
    #[test]
    fn files_come_in_their_order() {
        let text = "# a comment\nfile \"a b\" seq 3 type i\nfile x seq 1 type b\n\
                    file old seq 1 type h\nfile c seq 4 type i\n";
        assert_eq!(read(text).expect("it is sound"), ["x", "a b", "c"]);
    }

    /// Anything else is refused with its line.
    #[test]
    fn broken_manifests_are_refused() {
        for text in [
            "",
            "file a seq 1",
            "file a seq x type b",
            "file ../a seq 1 type b",
            "file a seq 1 type b\nfile b seq 2 type b",
            "file a seq 2 type i\nfile b seq 2 type i",
        ] {
            let error = read(text).expect_err(text);
            assert!(error.to_string().contains("line "), "{error}");
        }
    }
}
