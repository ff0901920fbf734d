//! Compiles the C++ shim against V8 and tells the linker where libnode.so is.
//!
//! V8 lies in `$NIGH_V8_DIR` (then it alone counts) or in `.v8` of the checkout, in the layout that
//! `scripts/setup.sh` makes: `include/v8.h`, `lib/libnode.so`, `V8_VERSION`. Its version must be
//! the one of `v8-version`, unless `NIGH_V8_ANY=1`.

use std::path::{Path, PathBuf};

/// The version of V8 with which the proofs were made.
const PINNED: &str = include_str!("v8-version").trim_ascii();
/// How many of a version's four numbers must be the pinned ones. MAJOR.MINOR.BUILD names a branch
/// of V8: its builtins, its optimizing compiler and its interface. The fourth number, the patch
/// level, counts fixes on that branch. Distributions bring them as security updates, so the build
/// takes any. Debian's suffix (`-node.37`) counts patches of the embedder; headers don't have it.
const NUMBERS_THAT_COUNT: usize = 3;

fn main() {
    println!("cargo:rerun-if-env-changed=NIGH_V8_DIR");
    println!("cargo:rerun-if-env-changed=NIGH_V8_ANY");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=v8-version");
    let v8 = v8_dir();
    println!("cargo:rerun-if-changed={}", v8.join("V8_VERSION").display());
    let Ok(lib) = v8.join("lib").canonicalize() else { missing(&v8) };
    if !lib.join("libnode.so").exists() || !v8.join("include/v8.h").exists() {
        missing(&v8);
    }
    check_version(&v8);

    let mut shim = cc::Build::new();
    if std::env::var_os("CARGO_FEATURE_BENCH_CALLBACK").is_some() {
        shim.define("NIGH_BENCH", None).file("shim/bench.cc");
    }
    shim.cpp(true)
        .files(
            ["allocator", "callbacks", "crash", "isolate", "platform", "shim"]
                .map(|name| format!("shim/{name}.cc")),
        )
        .flag("-isystem") // V8's headers are not warning-free
        .flag(v8.join("include").display().to_string())
        .std("c++17")
        // libnode has none; with it a subclass of V8's lacks typeinfo at link time
        .flag("-fno-rtti")
        .flag("-fno-exceptions")
        .warnings(true)
        .extra_warnings(true)
        .flag("-Wno-unused-parameter")
        .opt_level(2) // in debug builds too: it is small, and tests run through it
        .compile("nigh_shim");

    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=dylib=node");
    // For direct dependents: DEP_NIGH_V8_RPATH.
    println!("cargo:rpath={}", lib.display());
    // For this package's own tests and benches. RUNPATH would not be searched for libcares.
    println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{}", lib.display());
}

fn v8_dir() -> PathBuf {
    match std::env::var_os("NIGH_V8_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        // Read as it runs: two checkouts may share a target directory.
        _ => {
            let here = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where this lies");
            Path::new(&here).join("../../.v8")
        }
    }
}

fn missing(dir: &Path) -> ! {
    eprintln!(
        "V8 not found in {}: run scripts/setup.sh (or make setup), or set NIGH_V8_DIR",
        dir.display()
    );
    std::process::exit(1);
}

/// Refuses a V8 of another branch than the pinned one, unless `NIGH_V8_ANY` is 1.
fn check_version(v8: &Path) {
    let header = v8.join("include/v8-version.h");
    println!("cargo:rerun-if-changed={}", header.display());
    let text = std::fs::read_to_string(&header).unwrap_or_default();
    let number = |name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix("#define V8_")?.strip_prefix(name));
        line.map_or("?", str::trim)
    };
    let found = ["MAJOR_VERSION", "MINOR_VERSION", "BUILD_NUMBER", "PATCH_LEVEL"].map(number);
    if found.iter().copied().zip(PINNED.split('.')).take(NUMBERS_THAT_COUNT).all(|(f, p)| f == p) {
        return;
    }
    let (found, dir) = (found.join("."), v8.display());
    if std::env::var_os("NIGH_V8_ANY").is_some_and(|any| any == "1") {
        println!("cargo:warning=V8 {found} in {dir} is not {PINNED}, with which Nigh was proved");
        return;
    }
    eprintln!(
        "V8 {found} found in {dir}, but Nigh expects {PINNED} (the last number may differ): with that one \
         it was proved that hostile functions are stopped, that no builtin runs without end, and that reads \
         of records which change meanwhile are whole. `scripts/setup.sh` fetches it where a package has it. \
         To build with {found} all the same, set NIGH_V8_ANY=1, and run `make test`."
    );
    std::process::exit(1);
}
