//! Lets the tests of this package find libnode.so, which nigh-js links (feature `functions`).
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_NIGH_V8_RPATH");
    if std::env::var_os("CARGO_FEATURE_FUNCTIONS").is_some() {
        let rpath = std::env::var("DEP_NIGH_V8_RPATH").expect("nigh-js sets DEP_NIGH_V8_RPATH");
        // RUNPATH, unlike RPATH, is not searched for the libraries of libraries (libcares).
        println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{rpath}");
    }
}
