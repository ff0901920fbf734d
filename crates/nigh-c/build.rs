//! Gives the shared library its name for the dynamic linker: programs that are linked with it ask
//! for this one. And has it stay in memory behind `dlclose`: a handler for SIGBUS lies in it.

/// The last number changes when a program must be compiled anew. The installer makes a link of
/// this name.
const SONAME: &str = "libnigh.so.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
