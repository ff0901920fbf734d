//! The engines, behind one trait.
//!
//! ```text
//! Engine ── session() ──> Session: get put delete multi_get, of one thread
//! ```
//!
//! Each engine has a file. Those in C are called by the functions of their C headers, which the
//! file declares; `unsafe` is there only.

mod engine;
mod fjall;
mod leveldb;
mod lmdb;
mod nigh;
mod redb;
mod rocksdb;

pub(crate) use engine::{Engine, EngineKind, Place, Session};

use anyhow::{Result, bail};

/// All engines; the first one is compared with the others.
pub(crate) const ENGINES: [EngineKind; 6] =
    [nigh::KIND, leveldb::KIND, rocksdb::KIND, lmdb::KIND, redb::KIND, fjall::KIND];

/// The name of the engine that the others are compared with.
pub(crate) const OURS: &str = ENGINES[0].name;

/// The engine of a name.
pub(crate) fn engine_named(name: &str) -> Result<&'static EngineKind> {
    static ALL: [EngineKind; 6] = ENGINES;
    match ALL.iter().find(|engine| engine.name == name) {
        Some(engine) => Ok(engine),
        None => {
            let names: Vec<&str> = ALL.iter().map(|engine| engine.name).collect();
            bail!("there is no engine {name:?}; there are {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{is_value_of, key, value};

    fn found(session: &mut dyn Session, n: u64) -> bool {
        let mut right = false;
        let there = session.get(&key(n), &mut |bytes| right = is_value_of(bytes, n)).expect("get");
        assert_eq!(there, right, "a key that is there has its value");
        there
    }

    /// Each engine keeps what it is told, with and without waiting for the disk: what was put is
    /// read back, what was deleted isn't, and both are so after a close and an open.
    #[test]
    fn each_engine_does_what_it_is_told() {
        for kind in &ENGINES {
            for strong in [false, true] {
                let dir = tempfile::tempdir_in("/dev/shm").expect("a folder");
                let place = Place {
                    dir: dir.path().join("db"),
                    memory_dir: dir.path().join("memory"),
                    keys: 100,
                    strong,
                };
                std::fs::create_dir(&place.dir).expect("a folder");
                std::fs::create_dir(&place.memory_dir).expect("a folder");
                {
                    let engine = (kind.open)(&place).expect(kind.name);
                    let mut session = engine.session().expect("a session");
                    for n in 0..20 {
                        session.put(&key(n), &value(n)).expect("put");
                    }
                    session.delete(&key(7)).expect("delete");
                    if kind.multi_get.is_some() {
                        let mut seen = Vec::new();
                        let keys = [3, 7, 99, 5].map(key);
                        let see = &mut |at: usize, bytes: &[u8]| {
                            assert!(is_value_of(bytes, [3, 7, 99, 5][at]), "{}", kind.name);
                            seen.push(at);
                        };
                        session.multi_get(&keys, see).expect("multi_get");
                        assert_eq!(seen, [0, 3], "{}", kind.name);
                    }
                }
                let engine = (kind.open)(&place).expect(kind.name);
                let mut session = engine.session().expect("a session");
                for n in 0..25 {
                    let there = n < 20 && n != 7;
                    assert_eq!(found(&mut *session, n), there, "{}, key {n}", kind.name);
                }
            }
        }
    }
}
