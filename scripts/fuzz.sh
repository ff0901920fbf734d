#!/usr/bin/env bash
# Runs each fuzz target for a bounded time: scripts/fuzz.sh [SECONDS [TARGET...]]
# Default: 20 s of each target of fuzz/, as many at a time as there are cores. cargo-fuzz is built
# once, into .tools/cargo. After a finding no target begins any more, and the run ends with an error.
# The input is kept in fuzz/artifacts.
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
    # It only calls cargo: an optimized one takes longer to build than it saves.
    cargo install -q --debug cargo-fuzz --version "$CARGO_FUZZ_VERSION" --locked --root .tools/cargo
}

# Runs target $1 for $2 seconds, and tells its figures, or why it failed. Its log is in folder $3.
fuzz() {
    local target=$1 log=$3/$1
    if cargo fuzz run "$target" -- -max_total_time="$2" -rss_limit_mb="$RSS_LIMIT_MIB" \
        -timeout="$INPUT_SECONDS" -print_final_stats=1 >"$log" 2>&1; then
        flock "$3" cat <(say "$target for $2 s" 2>&1) <(grep '^stat::' "$log")
    else
        touch "$3/failed"
        flock "$3" cat <(tail -n 60 "$log") <(say "$target failed: see above" 2>&1) >&2
    fi
}

main() {
    local seconds=${1:-20} cores logs files target targets=()
    (($# == 0)) || shift
    # To the fuzzer 0 means without end.
    [[ $seconds =~ ^[1-9][0-9]*$ ]] || { say "SECONDS is a number from 1 on, not $seconds"; exit 2; }
    install_cargo_fuzz
    targets=("$@")
    ((${#targets[@]})) || mapfile -t targets < <(cargo fuzz list)
    ((${#targets[@]})) || die "fuzz/ has no targets"
    cores=$(nproc)
    logs=$(mktemp -d)
    files=$(mktemp -d /dev/shm/nigh-fuzz-XXXXXX) # targets end without a chance to remove theirs
    # shellcheck disable=SC2064 # the names are known now
    trap "rm -rf '$logs' '$files'" EXIT
    export NIGH_FUZZ_DIR=$files
    say "building the targets"
    cargo fuzz build >"$logs/build" 2>&1 || { cat "$logs/build" >&2; die "a target can't be built: see above"; }
    for target in "${targets[@]}"; do
        (($(jobs -rp | wc -l) < cores)) || wait -n
        [[ ! -e $logs/failed ]] || break
        fuzz "$target" "$seconds" "$logs" &
    done
    wait
    [[ ! -e $logs/failed ]] || die "a target failed: see above"
}

main "$@"
