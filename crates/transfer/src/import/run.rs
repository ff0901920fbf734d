//! Runs an import.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nigh_client::{ClientError, Connection};

use super::origin::Origin;
use super::plan::{
    AofFile, Plan, input_at, name_of, open, plan, source_error, survey_file, survey_rdb,
};
use crate::aof::{AofReader, Survey, Words};
use crate::applying::{Applier, Manner, bring_back_expiries};
use crate::fault::ImportError;
use crate::left_out::{LIBRARIES, LeftOut, MODULE_DATA};
use crate::rdb::{Found, RdbReader};
use crate::replica::Snapshot;
use crate::source::{Input, SourceError};
use crate::target::Target;

/// Keys or commands between two reports of progress.
const REPORT_EVERY: u64 = 1024;

/// How to import.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The database of the source, unless its [`Origin`] names one.
    pub db: u64,
    /// Remove all keys of the target first, when the source has been opened.
    pub replace: bool,
    /// Import an AOF up to where it is whole.
    pub allow_truncated: bool,
    /// The password of a running source whose address has none.
    pub source_password: Option<String>,
    /// The time by which keys are over, Unix ms.
    pub now_ms: i64,
    /// True: it ends before the next key or command that it would write.
    pub stop: Arc<AtomicBool>,
}

/// What was imported.
#[derive(Clone, Debug, Default)]
pub struct Imported {
    /// Writes that the target has accepted: a key of an RDB is one (one that is over is removed), a
    /// command of an AOF about one.
    pub written: u64,
    /// Keys that were over already.
    pub over: u64,
    /// What isn't imported.
    pub left_out: LeftOut,
    /// Bytes at the end of an AOF that don't count.
    pub cut_bytes: u64,
    /// Whether keys in the target have expiries that are still put off: it ended too early.
    pub has_put_off: bool,
}

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Whether this is the first reading of a file.
    pub is_survey: bool,
    /// Bytes of the source that were read.
    pub bytes: u64,
    /// All bytes of the source, if known.
    pub total_bytes: Option<u64>,
    /// Writes that were accepted.
    pub written: u64,
}

/// A running import.
struct Import<'a> {
    options: &'a ImportOptions,
    connect: &'a dyn Fn() -> Result<Connection, ClientError>,
    progress: &'a mut dyn FnMut(Progress),
    total_bytes: Option<u64>,
    /// Bytes of the files before the present one.
    bytes_before: u64,
}

/// Imports `origin` into the server that `connect` connects to. The result tells what was imported
/// up to an error, too. `progress` is told that a file isn't surveyed any more before anything of
/// it is written.
pub fn import(
    origin: &Origin,
    options: &ImportOptions,
    connect: &dyn Fn() -> Result<Connection, ClientError>,
    progress: &mut dyn FnMut(Progress),
) -> (Imported, Result<(), ImportError>) {
    let db = match origin {
        Origin::Server { db: Some(db), .. } => *db,
        _ => options.db,
    };
    let options = &ImportOptions { db, ..options.clone() };
    let mut import = Import { options, connect, progress, total_bytes: None, bytes_before: 0 };
    let mut imported = Imported::default();
    let outcome = match origin {
        Origin::Server { address, .. } => import.server(address, &mut imported),
        Origin::Stdin => {
            let input = Input::new(std::io::stdin().lock(), 0);
            import.rdb("stdin", input, &mut imported, |_| Ok(()))
        }
        Origin::Path(path) => match plan(path) {
            Ok(Plan::Rdb(path)) if options.allow_truncated => {
                Err(ImportError::NotTruncated { name: name_of(&path) })
            }
            Ok(Plan::Rdb(path)) => import.rdb_file(&path, &mut imported),
            Ok(Plan::Aof(paths)) => import.aof(paths, &mut imported),
            Err(error) => Err(error),
        },
    };
    (imported, outcome)
}

impl Import<'_> {
    fn rdb_file(&mut self, path: &Path, imported: &mut Imported) -> Result<(), ImportError> {
        let total_bytes = Some(len_of(&open(path)?));
        self.total_bytes = total_bytes;
        let (progress, mut count) = (&mut self.progress, 0);
        survey_rdb(path, self.options.db, &mut |bytes| {
            count += 1;
            if count % REPORT_EVERY == 0 {
                progress(Progress { is_survey: true, bytes, total_bytes, written: 0 });
            }
        })?;
        self.rdb(&name_of(path), input_at(path, 0)?, imported, |_| Ok(()))
    }

    fn server(
        &mut self,
        address: &nigh_client::Address,
        imported: &mut Imported,
    ) -> Result<(), ImportError> {
        let (snapshot, input) = Snapshot::ask(address, self.options.source_password.as_deref())?;
        self.total_bytes = snapshot.bytes();
        self.rdb(&address.to_string(), input, imported, |input| snapshot.check_end(input))
    }

    /// Imports an RDB; `at_end` looks at what follows it.
    fn rdb<R: Read>(
        &mut self,
        name: &str,
        input: Input<R>,
        imported: &mut Imported,
        at_end: impl FnOnce(&mut Input<R>) -> Result<(), SourceError>,
    ) -> Result<(), ImportError> {
        let failed = |cause| ImportError::Source { name: name.to_owned(), cause };
        let reader = RdbReader::open(input).map_err(failed)?;
        self.prepare(false, name)?;
        let mut applier = self.applier(false)?;
        let evicted = self.evicted()?;
        self.report(0, &applier);
        let outcome = self.keys(reader, &mut applier, name);
        let outcome = outcome.and_then(|mut input| at_end(&mut input).map_err(failed));
        finish(applier, imported, outcome)?;
        self.count_evicted(evicted, imported)
    }

    fn aof(
        &mut self,
        paths: Vec<std::path::PathBuf>,
        imported: &mut Imported,
    ) -> Result<(), ImportError> {
        let files = self.survey(paths)?;
        imported.cut_bytes = files.iter().map(|file| file.survey.cut_bytes).sum();
        let depending = files.iter().find(|file| file.survey.depends);
        let depends = depending.is_some();
        let name = depending.map(|file| name_of(&file.path)).unwrap_or_default();
        self.prepare(depends, &name)?;
        let mut applier = self.applier(depends)?;
        let evicted = self.evicted()?;
        self.report(0, &applier);
        imported.has_put_off = depends;
        let outcome = files.iter().try_for_each(|file| self.aof_file(file, &mut applier));
        if finish(applier, imported, outcome)? > 0 {
            let ImportOptions { now_ms, stop, .. } = self.options;
            imported.over += bring_back_expiries(&mut (self.connect)()?, *now_ms, stop)?;
        }
        imported.has_put_off = false;
        self.count_evicted(evicted, imported)
    }

    /// Reads all files of an AOF through. Only the last may end too early.
    fn survey(&mut self, paths: Vec<std::path::PathBuf>) -> Result<Vec<AofFile>, ImportError> {
        let bytes = paths.iter().map(|path| open(path).map(|file| len_of(&file)));
        let bytes = bytes.collect::<Result<Vec<_>, _>>()?;
        self.total_bytes = Some(bytes.iter().sum());
        let last = paths.len().saturating_sub(1);
        let (mut files, mut before) = (Vec::new(), 0);
        for (at, path) in paths.into_iter().enumerate() {
            let (progress, total_bytes) = (&mut self.progress, self.total_bytes);
            let mut count = 0;
            let file = survey_file(path, self.options.db, &mut |offset| {
                count += 1;
                if count % REPORT_EVERY == 0 {
                    let bytes = before + offset;
                    progress(Progress { is_survey: true, bytes, total_bytes, written: 0 });
                }
            })?;
            let Survey { end, cut_bytes, .. } = file.survey;
            if cut_bytes > 0 && at < last {
                let what = "a command or a transaction, and isn't the last file";
                return Err(source_error(&file.path, SourceError::Ended { offset: end, what }));
            }
            if cut_bytes > 0 && !self.options.allow_truncated {
                let name = name_of(&file.path);
                return Err(ImportError::Truncated { name, end, cut_bytes });
            }
            before += end;
            files.push(file);
        }
        Ok(files)
    }

    fn aof_file(&mut self, file: &AofFile, applier: &mut Applier) -> Result<(), ImportError> {
        applier.begin_file();
        let name = name_of(&file.path);
        if file.has_rdb {
            let reader = RdbReader::open(input_at(&file.path, 0)?);
            let reader = reader.map_err(|cause| source_error(&file.path, cause))?;
            self.keys(reader, applier, &name)?;
        }
        let mut reader = AofReader::new(input_at(&file.path, file.begin)?);
        let mut words = Words::default();
        let mut count = 0;
        while reader.offset() < file.survey.end {
            self.go_on()?;
            let offset = reader.offset();
            let found = reader.next_command(&mut words);
            if !found.map_err(|cause| source_error(&file.path, cause))? {
                break;
            }
            applier.command(&words, offset).map_err(|fault| fault.of(&name))?;
            count += 1;
            if count % REPORT_EVERY == 0 {
                self.report(reader.offset(), applier);
            }
        }
        self.bytes_before += reader.offset();
        Ok(())
    }

    /// Applies all keys of an RDB. Returns the input behind it.
    fn keys<R: Read>(
        &mut self,
        mut reader: RdbReader<R>,
        applier: &mut Applier,
        name: &str,
    ) -> Result<Input<R>, ImportError> {
        let mut count = 0;
        loop {
            self.go_on()?;
            let found = reader.next_found();
            match found.map_err(|cause| ImportError::Source { name: name.into(), cause })? {
                Found::Key(entry) => {
                    applier.key(&mut reader, &entry).map_err(|fault| fault.of(name))?;
                }
                Found::Function(library) => {
                    applier.left_out.add(LIBRARIES, library.as_bytes());
                }
                Found::ModuleData(module) => {
                    applier.left_out.add(MODULE_DATA, module.as_bytes());
                }
                Found::End => return Ok(reader.into_input()),
            }
            count += 1;
            if count % REPORT_EVERY == 0 {
                self.report(reader.offset(), applier);
            }
        }
    }

    /// An error if it is to end.
    fn go_on(&self) -> Result<(), ImportError> {
        match self.options.stop.load(Ordering::Relaxed) {
            true => Err(ImportError::Interrupted),
            false => Ok(()),
        }
    }

    fn report(&mut self, offset: u64, applier: &Applier) {
        let bytes = self.bytes_before + offset;
        let written = applier.target.accepted();
        let total_bytes = self.total_bytes;
        (self.progress)(Progress { is_survey: false, bytes, total_bytes, written });
    }

    /// Empties the target if that was asked for, or sees that it is empty if it must be.
    fn prepare(&self, must_be_empty: bool, name: &str) -> Result<(), ImportError> {
        let mut connection = (self.connect)()?;
        let address = connection.address().to_string();
        let mut call = |command: &'static str| {
            let reply = connection.call([command])?;
            match reply.error() {
                None => Ok(reply),
                Some(text) => {
                    let (address, reply) = (address.clone(), text.escape_ascii().to_string());
                    Err(ImportError::Answer { address, command, reply })
                }
            }
        };
        if self.options.replace {
            call("FLUSHALL")?;
        }
        let keys = if must_be_empty { call("DBSIZE")?.integer().unwrap_or(0) } else { 0 };
        if keys > 0 {
            return Err(ImportError::NotEmpty { address, keys, name: name.to_owned() });
        }
        Ok(())
    }

    /// Keys that the target has evicted since its start.
    fn evicted(&self) -> Result<u64, ImportError> {
        let reply = (self.connect)()?.call(["INFO", "stats"])?;
        let text = String::from_utf8_lossy(reply.bytes().unwrap_or_default());
        let count = text.lines().find_map(|line| line.strip_prefix("evicted_keys:"));
        Ok(count.and_then(|count| count.trim().parse().ok()).unwrap_or(0))
    }

    /// A server that evicts refuses nothing: keys that went are left out all the same.
    fn count_evicted(&self, before: u64, imported: &mut Imported) -> Result<(), ImportError> {
        let evicted = self.evicted()?.saturating_sub(before);
        imported
            .left_out
            .add_many("keys evicted again by the server, whose memory is full", evicted);
        Ok(())
    }

    fn applier(&self, puts_off: bool) -> Result<Applier, ImportError> {
        let ImportOptions { db, now_ms, .. } = *self.options;
        Ok(Applier::new(Target::new((self.connect)()?)?, Manner { db, puts_off, now_ms }))
    }
}

/// Waits for all replies. Returns how many expiries were put off.
fn finish(
    applier: Applier,
    imported: &mut Imported,
    outcome: Result<(), ImportError>,
) -> Result<u64, ImportError> {
    let Applier { target, over, left_out, put_off, .. } = applier;
    let (written, refused, answered) = target.finish();
    imported.written = written;
    imported.over += over;
    imported.left_out = left_out;
    imported.left_out.merge(refused);
    outcome.and(answered.map_err(ImportError::from)).map(|()| put_off)
}

fn len_of(file: &File) -> u64 {
    file.metadata().map_or(0, |found| found.len())
}
