#!/usr/bin/env bash
# Runs each fuzz target for a bounded time: scripts/fuzz.sh [SECONDS [TARGET...]]
# Default: 20 s of each target of fuzz/. cargo-fuzz is built once, into .tools/cargo.
# A finding ends the run with an error. Its input is kept in fuzz/artifacts.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

readonly CARGO_FUZZ_VERSION=0.13.2
readonly RSS_LIMIT_MIB=2048 # a target that needs more has lost a bound
readonly INPUT_SECONDS=60 # an input that takes longer has no end; the slowest need a part of a second

# cargo-fuzz passes unstable compiler flags (sanitizer, coverage); this allows them on stable Rust.
export RUSTC_BOOTSTRAP=1
export PATH=$PWD/.tools/cargo/bin:$PATH

install_cargo_fuzz() {
    mkdir -p .tools
    exec 9<fuzz
    flock 9
    [[ $(cargo fuzz --version 2>/dev/null) == "cargo-fuzz $CARGO_FUZZ_VERSION" ]] && return
    say "building cargo-fuzz $CARGO_FUZZ_VERSION into .tools/cargo"
    cargo install -q cargo-fuzz --version "$CARGO_FUZZ_VERSION" --locked --root .tools/cargo
}

main() {
    local seconds=${1:-20} log files target targets=()
    (($# == 0)) || shift
    install_cargo_fuzz
    targets=("$@")
    ((${#targets[@]})) || mapfile -t targets < <(cargo fuzz list)
    ((${#targets[@]})) || die "fuzz/ has no targets"
    log=$(mktemp)
    files=$(mktemp -d /dev/shm/nigh-fuzz-XXXXXX) # targets end without a chance to remove theirs
    # shellcheck disable=SC2064 # the names are known now
    trap "rm -rf '$log' '$files'" EXIT
    export NIGH_FUZZ_DIR=$files
    for target in "${targets[@]}"; do
        say "$target for $seconds s"
        cargo fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb="$RSS_LIMIT_MIB" \
            -timeout="$INPUT_SECONDS" -print_final_stats=1 >"$log" 2>&1 ||
            { tail -n 60 "$log" >&2; die "$target failed: see above"; }
        grep '^stat::' "$log"
    done
}

main "$@"
