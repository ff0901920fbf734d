#!/usr/bin/env bash
# Changes the files that keep the invariants in many small ways, one at a time, and runs the tests that should notice:
#
#   scripts/mutants.sh [FILE...]      default: all files of the table below; many hours
#
# Each mutant is built and tested in a copy of the tree, which stays clean. What lived is in
# target/mutants/FILE/mutants.out/missed.txt; docs/mutants.md has the figures, and why some live.
# The file's path has dashes for slashes there. A run that lets a mutant live is no error of the script.
# cargo-mutants is built once, into .tools/cargo. MUTANTS_ARGS is passed on to it, such as "--shard 0/4" or "--re fn".
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

readonly CARGO_MUTANTS_VERSION=27.1.0
readonly TEST_SECONDS=240  # the tests of a row take up to 60 s alone; a mutant that loops never ends
readonly BUILD_SECONDS=600 # on a machine that does other things too

# Tests that take long and see nothing that shorter ones don't.
readonly SLOW_SHM="--skip a_commit_that_waits_for_a_large_table --skip no_story_depends_on_how_soon \
--skip a_table_prepared_for_keys --skip an_index_of_few_keys --skip an_arena_that_is_never_idle \
--skip a_nearly_full_arena_takes --skip ring::"
readonly SLOW_STORE="--skip no_write_into_a_full_arena --skip hits_are_close --skip large_values_survive_being"

# File, and what comes behind `cargo test -p PACKAGE`.
readonly TABLE="
crates/shm/src/foreign.rs        --lib -- foreign cut_off model_a_reader_that_nobody
crates/shm/src/scan.rs           --lib -- stepped readers scan
crates/shm/src/index/pick.rs     --lib -- stepped
crates/shm/src/index.rs          --lib -- $SLOW_SHM
crates/shm/src/index/deleted.rs  --lib -- $SLOW_SHM
crates/shm/src/growth.rs         --lib -- --skip no_story_depends_on_how_soon
crates/shm/src/commit.rs         --lib -- $SLOW_SHM
crates/shm/src/reclaim.rs        --lib -- $SLOW_SHM
crates/shm/src/space/reclaim.rs  --lib -- $SLOW_SHM
crates/shm/src/space/adopt.rs    --lib -- $SLOW_SHM
crates/shm/src/cleaner.rs        --lib -- --skip no_story_depends_on_how_soon
crates/shm/src/writer.rs         --lib -- $SLOW_SHM
crates/shm/src/reader.rs         --lib -- $SLOW_SHM
crates/shm/src/adopt.rs          --lib -- $SLOW_SHM
crates/store/src/apply.rs        --test store -- $SLOW_STORE
crates/store/src/transaction.rs  --test store -- $SLOW_STORE
crates/store/src/eviction.rs     --test store
crates/store/src/eviction/candidates.rs --test store
crates/server/src/later.rs
crates/server/src/mailbox.rs     --lib
crates/server/src/peer.rs
crates/resp/src/decode/requests.rs
crates/resp/src/decode/replies.rs
crates/resp/src/decode/batch.rs
crates/resp/src/decode/skip.rs
crates/resp/src/decode/number.rs
crates/resp/src/decode/inline.rs
"

install_cargo_mutants() {
    mkdir -p .tools
    exec 9<scripts
    flock 9
    [[ $(cargo mutants --version 2>/dev/null) == "cargo-mutants $CARGO_MUTANTS_VERSION" ]] && return
    say "building cargo-mutants $CARGO_MUTANTS_VERSION into .tools/cargo"
    cargo install -q cargo-mutants --version "$CARGO_MUTANTS_VERSION" --locked --root .tools/cargo
}

# Mutates file $1. 2 and 3 are cargo-mutants' codes for mutants that lived or ran out of time.
mutate() {
    local file=$1 line out code=0 tests=() more=()
    line=$(grep -E "^$file( |\$)" <<<"$TABLE") || die "$file is not in the table of scripts/mutants.sh"
    read -ra tests <<<"${line#"$file"}"
    read -ra more <<<"${MUTANTS_ARGS:-}"
    out=$CARGO_TARGET_DIR/mutants/${file//\//-}
    mkdir -p "$out"
    say "$file"
    nice -n 5 cargo mutants --file "$file" --output "$out" --jobs 1 \
        --timeout "$TEST_SECONDS" --build-timeout "$BUILD_SECONDS" --colors never \
        "${more[@]}" -- --locked "${tests[@]}" || code=$?
    ((code == 0 || code == 2 || code == 3)) || die "cargo-mutants ended with $code"
}

main() {
    local file files=("$@")
    export PATH=$PWD/.tools/cargo/bin:$PATH
    # The copy has no .v8 of its own; what its crates depend on is built already, as a rule.
    export NIGH_V8_DIR=${NIGH_V8_DIR:-$PWD/.v8} CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
    install_cargo_mutants
    exec 9<&-
    ((${#files[@]})) || mapfile -t files < <(awk 'NF { print $1 }' <<<"$TABLE")
    for file in "${files[@]}"; do
        mutate "$file"
    done
}

main "$@"
