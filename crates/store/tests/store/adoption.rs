//! What opening a store finds, and what closing it leaves.

use nigh_store::{Store, StoreError, StoreOptions};

use crate::support::{CAPACITY_BYTES, Fixture};

/// A store that is dropped without closing, as by a crash, is found whole: keys, values, expiries.
#[test]
fn a_crashed_store_is_adopted_whole() {
    let mut fixture = Fixture::new();
    let large = vec![b'x'; 300_000];
    fixture.bytes(&[b"SET", b"large", &large]);
    for n in 0..5000 {
        fixture.run(&format!("SET k{n} v{n}"));
        if n % 10 == 0 {
            fixture.run(&format!("EXPIRE k{n} 100"));
        }
    }
    let opened = fixture.crash();
    let adopted = opened.data.expect("adopted");
    assert_eq!((adopted.keys, adopted.expires), (5001, 500));
    assert!(opened.system.is_some());
    for n in 0..5000_u32 {
        let value = format!("v{n}");
        assert_eq!(fixture.run(&format!("GET k{n}")), format!("${} {value}", value.len()));
        let ttl = if n % 10 == 0 { ":100" } else { ":-1" };
        assert_eq!(fixture.run(&format!("TTL k{n}")), ttl);
    }
    assert_eq!(fixture.bytes(&[b"GET", b"large"]).len(), 300_000 + 11);
    fixture.script(&[("SET k0 new", "+OK"), ("GET k0", "$3 new"), ("DBSIZE", ":5001")]);
}

/// `fresh` begins anew. Closing keeps the arenas, or removes all that the store made.
#[test]
fn stores_begin_anew_and_clean_up() {
    let mut fixture = Fixture::new();
    fixture.run("SET a 1");
    let dir = fixture.dir.path().join("arenas");
    fixture.store.take().expect("open").close();
    assert!(dir.join("default.0.arena").exists() && dir.join("_system.0.arena").exists());
    let mut options = StoreOptions::new(&dir, CAPACITY_BYTES);
    options.fresh = true;
    let (store, opened) = Store::open(&options, &fixture.domain).expect("opens");
    assert!(opened.data.is_none() && opened.system.is_none());
    fixture.store = Some(store);
    assert_eq!(fixture.run("DBSIZE"), ":0");
    fixture.store.take().expect("open").close().expect("an owner").remove();
    assert!(!dir.exists(), "nothing is left");
}

/// The directory is private to the user.
#[test]
fn the_directory_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new();
    let metadata = std::fs::metadata(fixture.dir.path().join("arenas")).expect("is there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
}

/// A store that can't be opened names file and reason, and changes nothing.
#[test]
fn what_cannot_be_opened_is_refused_with_a_reason() {
    let mut fixture = Fixture::new();
    let dir = fixture.dir.path().join("arenas");
    fixture.store.take().expect("open").close();
    let damaged = b"not an arena".repeat(1000);
    std::fs::write(dir.join("default.0.arena"), &damaged).expect("written");
    let open = |options: &StoreOptions| match Store::open(options, &fixture.domain) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    };
    let error = open(&StoreOptions::new(&dir, CAPACITY_BYTES));
    assert!(error.to_string().contains("default.0.arena"), "{error}");
    assert_eq!(std::fs::read(dir.join("default.0.arena")).expect("read"), damaged);
    for name in ["", "../x", "_system", ".", "a b", &"x".repeat(129)] {
        let mut options = StoreOptions::new(&dir, CAPACITY_BYTES);
        options.tenant = name.to_owned();
        assert!(matches!(open(&options), StoreError::TenantName { .. }), "{name:?}");
    }
    let file = fixture.dir.path().join("file");
    std::fs::write(&file, b"").expect("written");
    let error = open(&StoreOptions::new(file.join("sub"), CAPACITY_BYTES));
    assert!(matches!(error, StoreError::Directory { .. }), "{error}");
}
