#!/usr/bin/env bash
# Runs the tests of the crate js under AddressSanitizer: scripts/asan.sh [ARGUMENT OF CARGO TEST...]
# Without arguments it runs all of them. It ends with an error if a test fails, or if the sanitizer
# finds a memory error or a leak. The sanitizer describes it, and ends that test's process.
#
# Rust and the shim's C++ are instrumented. V8 isn't: it is Debian's libnode. So the sanitizer sees
# our accesses to memory that we or V8 have allocated, and V8's accesses through the C library
# (memcpy and its like, free). It doesn't see mapped memory: V8's heap, the io memory, the arenas of
# a server.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

main() {
    local target
    scripts/setup.sh
    target=$(rustc -vV | sed -n 's/^host: //p')
    # -Z is unstable; this allows it on stable Rust, as for the fuzz targets.
    export RUSTC_BOOTSTRAP=1
    # For the target alone: build scripts and macros run as they are.
    export RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes"
    export "CXXFLAGS_${target//-/_}=-fsanitize=address -fno-omit-frame-pointer -g"
    # Other flags would rebuild everything in the directory that is shared.
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/asan
    # The search for leaks stops all threads. Where a container forbids that, set
    # ASAN_OPTIONS=detect_leaks=0.
    export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:${ASAN_OPTIONS:-}
    (($#)) || set -- --lib --tests --no-fail-fast
    cargo test --locked -p nigh-js --target "$target" "$@" ||
        die "a test failed, or AddressSanitizer has found something: see above"
}

main "$@"
