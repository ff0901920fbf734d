//! `include/nigh.h` is what cbindgen makes of the source. `make header` makes it anew.

use std::path::Path;

/// Has the test write the header instead.
const WRITES: &str = "NIGH_WRITE_HEADER";

#[test]
fn the_header_is_as_the_source_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("its settings");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in ["fault", "c_types", "boundary/db", "boundary/beside"] {
        builder = builder.with_src(root.join("src").join(name).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().expect("cbindgen understands the source").write(&mut made);
    let path = root.join("include/nigh.h");
    if std::env::var_os(WRITES).is_some() {
        std::fs::write(&path, &made).expect("the header is written");
    }
    let there = std::fs::read(&path).expect("the header");
    assert!(there == made, "include/nigh.h is stale: run `make header`");
}
