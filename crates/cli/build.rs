//! Lets the nigh binary find libnode.so, which nigh-js links.
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=DEP_NIGH_V8_RPATH");
    let rpath = std::env::var("DEP_NIGH_V8_RPATH").expect("nigh-js sets DEP_NIGH_V8_RPATH");
    // RUNPATH, unlike RPATH, is not searched for the libraries of libraries (libcares).
    println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{rpath}");
}
