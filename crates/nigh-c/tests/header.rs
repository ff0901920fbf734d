//! `include/nigh.h` and `nigh_client.h` are what cbindgen makes of the source. `make header` makes
//! them anew.

use std::path::Path;

/// Has the test write the headers instead.
const WRITES: &str = "NIGH_WRITE_HEADER";

/// A header is as its settings, and these files of the source, say.
fn check(header: &str, settings: &str, files: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join(settings)).expect("its settings");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in files {
        builder = builder.with_src(root.join("src").join(name).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().expect("cbindgen understands the source").write(&mut made);
    let path = root.join("include").join(header);
    if std::env::var_os(WRITES).is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let there = std::fs::read(&path).expect("the header");
    assert!(there == made, "include/{header} is stale: run `make header`");
}

#[test]
fn the_headers_are_as_the_source_says() {
    check("nigh.h", "cbindgen.toml", &["fault", "c_types", "boundary/db", "boundary/beside"]);
    let files =
        ["client_types", "boundary/client", "boundary/client_view", "boundary/client_writes"];
    check("nigh_client.h", "cbindgen-client.toml", &files);
}
