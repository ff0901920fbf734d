#!/usr/bin/env bash
# The tests of the js crate under AddressSanitizer: scripts/asan.sh [TEST ARGUMENT...]
# Rust and the shim's C++ are instrumented, V8 itself isn't. Leaks aren't looked for: V8 keeps some memory
# to the end of the process.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# -Z is unstable; this allows it on stable Rust, as for the fuzz targets.
export RUSTC_BOOTSTRAP=1
export RUSTFLAGS="-Zsanitizer=address" CXXFLAGS="-fsanitize=address -fno-omit-frame-pointer"
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1
target=$(rustc -vV | sed -n 's/^host: //p')
# A target folder of its own: the flags would rebuild everybody's.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/asan
exec cargo test --locked -p nigh-js --lib --test "*" --target "$target" "$@"
