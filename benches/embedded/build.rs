//! Links the system's LevelDB, RocksDB and LMDB, and passes on the versions that their headers
//! state.

use std::path::Path;
use std::process::ExitCode;

/// Where C headers of packages lie.
const FOLDERS: [&str; 2] = ["/usr/include", "/usr/local/include"];

fn header(name: &str) -> Result<String, String> {
    let mut places = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    let path = places.find(|path| path.is_file()).ok_or_else(|| {
        format!(
            "{name} isn't there: run scripts/bench-embedded-setup.sh, or install libleveldb-dev \
             librocksdb-dev liblmdb-dev"
        )
    })?;
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The number that `name` is defined as, or is set to (`kMajorVersion = 1;`).
fn number(text: &str, name: &str) -> Result<String, String> {
    let after = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| *word == name)?;
        let value = words.get(at + 1..)?.iter().find(|word| **word != "=")?;
        Some(value.trim_end_matches(';').to_owned())
    };
    text.lines().find_map(after).ok_or_else(|| format!("a header doesn't say {name}"))
}

fn version(file: &str, names: &[&str]) -> Result<String, String> {
    let text = header(file)?;
    let numbers: Result<Vec<String>, String> =
        names.iter().map(|name| number(&text, name)).collect();
    Ok(numbers?.join("."))
}

fn run() -> Result<(), String> {
    let leveldb = version("leveldb/db.h", &["kMajorVersion", "kMinorVersion"])?;
    let rocksdb =
        version("rocksdb/version.h", &["ROCKSDB_MAJOR", "ROCKSDB_MINOR", "ROCKSDB_PATCH"])?;
    let lmdb = version("lmdb.h", &["MDB_VERSION_MAJOR", "MDB_VERSION_MINOR", "MDB_VERSION_PATCH"])?;
    let lock = std::fs::read_to_string("Cargo.lock").map_err(|error| error.to_string())?;
    println!("cargo:rustc-env=VERSION_LEVELDB={leveldb}");
    println!("cargo:rustc-env=VERSION_ROCKSDB={rocksdb}");
    println!("cargo:rustc-env=VERSION_LMDB={lmdb}");
    for (variable, package) in
        [("VERSION_NIGH", "nigh"), ("VERSION_REDB", "redb"), ("VERSION_FJALL", "fjall")]
    {
        println!("cargo:rustc-env={variable}={}", locked(&lock, package)?);
    }
    for library in ["leveldb", "rocksdb", "lmdb"] {
        println!("cargo:rustc-link-lib={library}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=Cargo.lock");
    Ok(())
}

/// The version of a package in Cargo.lock.
fn locked(lock: &str, package: &str) -> Result<String, String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
    let version = version.ok_or_else(|| format!("Cargo.lock doesn't name {package}"))?;
    Ok(version.trim_end_matches('"').to_owned())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}
