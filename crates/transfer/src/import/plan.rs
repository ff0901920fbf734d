//! Finds out what a path is, and whether its files are whole.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::aof::{Survey, files_of, survey};
use crate::fault::ImportError;
use crate::rdb::{Found, RdbReader, ValueKind};
use crate::source::{Input, SourceError, open_file};

/// The first bytes of an RDB file.
const RDB_MAGICS: [&[u8]; 2] = [b"REDIS", b"VALKEY"];

/// One file of an AOF.
pub(super) struct AofFile {
    pub(super) path: PathBuf,
    /// Whether it begins with an RDB.
    pub(super) has_rdb: bool,
    /// Where its commands begin.
    pub(super) begin: u64,
    pub(super) survey: Survey,
}

/// What a path is.
pub(super) enum Plan {
    Rdb(PathBuf),
    Aof(Vec<PathBuf>),
}

pub(super) fn name_of(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn open(path: &Path) -> Result<File, ImportError> {
    open_file(path).map_err(|cause| ImportError::Open { name: name_of(path), cause })
}

pub(super) fn source_error(path: &Path, cause: SourceError) -> ImportError {
    ImportError::Source { name: name_of(path), cause }
}

/// Opens a file at an offset.
pub(super) fn input_at(path: &Path, offset: u64) -> Result<Input<File>, ImportError> {
    let mut file = open(path)?;
    let sought = file.seek(SeekFrom::Start(offset));
    sought.map_err(|cause| ImportError::Open { name: name_of(path), cause })?;
    Ok(Input::new(file, offset))
}

/// What lies at a path.
pub(super) fn plan(path: &Path) -> Result<Plan, ImportError> {
    let is_manifest = path.extension().is_some_and(|end| end == "manifest");
    if path.is_dir() || is_manifest {
        return Ok(Plan::Aof(files_of(path)?));
    }
    let failed = |cause| source_error(path, cause);
    let mut input = input_at(path, 0)?;
    let first = input.peek(16).map_err(failed)?.to_vec();
    if RDB_MAGICS.iter().any(|magic| first.starts_with(magic)) {
        let mut reader = RdbReader::open(input).map_err(failed)?;
        // The aux fields, one of which says what it is, come before anything else.
        reader.next_found().map_err(failed)?;
        let path = path.to_owned();
        return Ok(if reader.is_aof_base() { Plan::Aof(vec![path]) } else { Plan::Rdb(path) });
    }
    if matches!(first.first(), Some(b'*' | b'#')) {
        return Ok(Plan::Aof(vec![path.to_owned()]));
    }
    Err(failed(SourceError::UnknownFormat { first: first.escape_ascii().to_string() }))
}

/// Reads an RDB to its end, as an import of this database does. Returns the input behind it.
fn walk<R: Read>(
    mut reader: RdbReader<R>,
    db: u64,
    moved: &mut dyn FnMut(u64),
) -> Result<Input<R>, SourceError> {
    loop {
        match reader.next_found()? {
            Found::End => return Ok(reader.into_input()),
            Found::Key(entry) if entry.db == db && entry.kind == ValueKind::String => {
                reader.value::<SourceError>(|_| Ok(()))?;
            }
            _ => {}
        }
        moved(reader.offset());
    }
}

/// Reads an RDB file through: nothing is changed before it is known to be whole.
pub(super) fn survey_rdb(
    path: &Path,
    db: u64,
    moved: &mut dyn FnMut(u64),
) -> Result<(), ImportError> {
    let failed = |cause| source_error(path, cause);
    let reader = RdbReader::open(input_at(path, 0)?).map_err(failed)?;
    let mut input = walk(reader, db, moved).map_err(failed)?;
    if !input.is_over().map_err(failed)? {
        return Err(failed(input.malformed("bytes behind the end of the RDB file")));
    }
    Ok(())
}

/// Reads one file of an AOF through.
pub(super) fn survey_file(
    path: PathBuf,
    db: u64,
    moved: &mut dyn FnMut(u64),
) -> Result<AofFile, ImportError> {
    let mut input = input_at(&path, 0)?;
    let failed = |cause| source_error(&path, cause);
    let first = input.peek(6).map_err(failed)?.to_vec();
    let has_rdb = RDB_MAGICS.iter().any(|magic| first.starts_with(magic));
    let mut begin = 0;
    if has_rdb {
        let reader = RdbReader::open(input).map_err(failed)?;
        input = walk(reader, db, moved).map_err(failed)?;
        begin = input.offset();
    }
    let survey = survey(input, db, moved).map_err(failed)?;
    Ok(AofFile { path, has_rdb, begin, survey })
}
