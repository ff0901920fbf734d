//! Compiles the C++ shim against V8 and tells the linker where libnode.so is.
//!
//! V8 lies in `$NIGH_V8_DIR` (then it alone counts) or in `.v8` of the checkout, in the layout that
//! `scripts/setup.sh` makes: `include/v8.h`, `lib/libnode.so`, `V8_VERSION`.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-env-changed=NIGH_V8_DIR");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=shim");
    let v8 = v8_dir();
    println!("cargo:rerun-if-changed={}", v8.join("V8_VERSION").display());
    let Ok(lib) = v8.join("lib").canonicalize() else { missing(&v8) };
    if !lib.join("libnode.so").exists() || !v8.join("include/v8.h").exists() {
        missing(&v8);
    }

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
        .flag("-fno-rtti") // libnode has none; with it a subclass of V8's lacks typeinfo at link time
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
