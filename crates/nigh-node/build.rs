//! Tells the linker what a module of Node.js needs.

fn main() {
    napi_build::setup();
}
