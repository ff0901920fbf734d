#!/usr/bin/env bash
# Changes the files that keep the invariants in many small ways, one at a time, and runs the tests
# that should notice:
#
#   scripts/mutants.sh [FILE...]      default: all files of the table below; many hours
#
# Each mutant is built and tested in a copy of the tree, so the tree stays clean. To be cheap, a run
# builds only the targets of the file's row, without debug information, into a target folder that
# all runs share. Its tests end at the first failure. Slow tests run in a second pass, over the
# mutants that lived through the first.
#
# target/mutants/FILE/mutants.out/missed.txt lists the mutants that lived; FILE has dashes for
# slashes. docs/mutants.md has the figures, and why some live. A mutant that lives is no error of
# the script. cargo-mutants is built once, into .tools/cargo. MUTANTS_ARGS is passed on to it, such
# as "--shard 0/4" or "--re fn"; in a copy of the tree that stays, "--in-place --baseline=skip
# --timeout=60" begins at once. MUTANTS_PASS=quick skips the second pass, MUTANTS_PASS=late the
# first.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

readonly CARGO_MUTANTS_VERSION=27.1.0
readonly LATE_SECONDS=240  # the late tests take up to 60 s alone; a mutant that loops never ends
readonly TEST_BYTES=$((6 << 30)) # private memory of a program of tests
readonly SERVER_TEST_BYTES=$((24 << 30)) # V8 reserves 2 GiB for each shard: tests have up to 12
readonly BUILD_SECONDS=600 # on a machine that does other things too

# The tests of the second pass. The word after a row's bar names its list; a row without a bar has
# none.
readonly LATE_shm="tests::crash:: tests::tables:: tests::churn:: tests::model:: tests::agree::verify_and \
an_arena_that_is_never_idle a_burst_finds a_nearly_full_arena_takes staged_records_survive_cleaning_around \
an_index_behaves_like_a_map model_growth_hides memory_goes_back_after many_keys_survive_growth a_file_that_is_cut_off"
readonly LATE_store="no_write_into_a_full_arena whatever_bit_of_a_header a_crashed_store_is_adopted hits_are_close \
a_full_arena_takes_writes the_only_key_that_may_go values_of_all_sizes a_copy_ the_store_answers_as_a_map"

# Functions that only ask for memory ahead: no test could notice what they do.
readonly HINTS=prefetch

# Tests that notice nothing that others don't notice.
readonly NOT_SHM="--skip ring:: --skip no_story_depends_on_how_soon"

# File, arguments after `cargo test -p PACKAGE`, and after a bar the list of late tests.
readonly TABLE="
crates/shm/src/read/foreign/mod.rs             --lib -- foreign outside in_place cut_off model_a_reader_that_nobody
crates/shm/src/read/foreign/copier.rs          --lib -- foreign outside in_place cut_off model_a_reader_that_nobody
crates/shm/src/read/foreign/foreign_arenas.rs  --lib -- foreign
crates/shm/src/read/foreign/foreign_values.rs  --lib -- foreign outside
crates/shm/src/read/foreign/in_place.rs        --lib -- in_place outside_adoption
crates/shm/src/read/foreign/last_look.rs       --lib -- last_look
crates/shm/src/read/foreign/room.rs            --lib -- foreign outside in_place
crates/shm/src/read/foreign/foreign_view.rs    --lib -- foreign outside
crates/shm/src/read/foreign/read_check.rs      --lib -- foreign outside
crates/shm/src/read/cursor.rs                  --lib -- stepped readers scan
crates/shm/src/index/pick.rs                   --lib -- stepped
crates/shm/src/index/mod.rs                    --lib -- $NOT_SHM | shm
crates/shm/src/index/lookup.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/index/deleted.rs                --lib -- $NOT_SHM | shm
crates/shm/src/index/growth.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/index/moment.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/write/grow.rs                   --lib -- $NOT_SHM | shm
crates/shm/src/write/commit.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/qsbr.rs                         --lib -- $NOT_SHM | shm
crates/shm/src/space/from_survey.rs            --lib -- $NOT_SHM | shm
crates/shm/src/space/alive.rs                  --lib -- $NOT_SHM | shm
crates/shm/src/space/cold.rs                   --lib -- $NOT_SHM | shm
crates/shm/src/space/lists.rs                  --lib -- $NOT_SHM | shm
crates/shm/src/space/marks.rs                  --lib -- $NOT_SHM | shm
crates/shm/src/space/named.rs                  --lib -- $NOT_SHM | shm
crates/shm/src/space/reclaim.rs                --lib -- $NOT_SHM | shm
crates/shm/src/space/runs.rs                   --lib -- $NOT_SHM | shm
crates/shm/src/space/warm.rs                   --lib -- $NOT_SHM | shm
crates/shm/src/space/mod.rs                    --lib -- $NOT_SHM | shm
crates/shm/src/write/clean.rs                  --lib -- $NOT_SHM | shm
crates/shm/src/write/cleaner.rs                --lib -- $NOT_SHM | shm
crates/shm/src/write/writer.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/write/change.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/write/delete.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/read/reader.rs                  --lib -- $NOT_SHM | shm
crates/shm/src/recover/adopt.rs                --lib -- $NOT_SHM | shm
crates/shm/src/recover/journal_left.rs         --lib -- $NOT_SHM | shm
crates/shm/src/recover/mend.rs                 --lib -- $NOT_SHM | shm
crates/shm/src/recover/records.rs              --lib -- $NOT_SHM | shm
crates/shm/src/recover/replay.rs               --lib -- $NOT_SHM | shm
crates/shm/src/recover/verifier.rs             --lib -- $NOT_SHM | shm
crates/store/src/apply/dispatch.rs             --test store -- | store
crates/store/src/commit/transactions.rs        --test store -- | store
crates/store/src/making_room.rs                --lib --test store -- | store
crates/store/src/eviction/candidates.rs        --lib --test store -- | store
crates/server/src/hop/later.rs     --lib --tests
crates/server/src/hop/later/values.rs      --lib
crates/server/src/hop/mailbox.rs   --lib
crates/server/src/hop/allowance.rs --lib
crates/server/src/hop/message/mod.rs       --lib
crates/server/src/hop/message/commands.rs  --lib
crates/server/src/hop/message/replies.rs   --lib
crates/server/src/hop/message/writes.rs    --lib
crates/server/src/turn/exchange.rs --lib --tests
crates/server/src/turn/peers.rs    --lib --tests
crates/server/src/turn/scatter.rs  --lib --tests
crates/resp/src/decode/requests.rs --lib --tests
crates/resp/src/decode/replies.rs  --lib --tests
crates/resp/src/decode/command_batch.rs    --lib --tests
crates/resp/src/decode/number.rs   --lib --tests
crates/resp/src/decode/inline.rs   --lib --tests
"

install_cargo_mutants() {
    mkdir -p .tools
    exec 9<scripts
    flock 9
    [[ $(cargo mutants --version 2>/dev/null) == "cargo-mutants $CARGO_MUTANTS_VERSION" ]] && return
    say "building cargo-mutants $CARGO_MUTANTS_VERSION into .tools/cargo"
    cargo install -q cargo-mutants --version "$CARGO_MUTANTS_VERSION" --locked --root .tools/cargo
}

# Mutates file $1, with the quick tests of its row; then once more, with the late tests, the mutants
# that lived.
mutate() {
    local file=$1 line tests late=() skips=() name bytes=$TEST_BYTES
    line=$(grep -E "^$file " <<<"$TABLE") || die "$file is not in the table of scripts/mutants.sh"
    line=${line#"$file"}
    read -ra tests <<<"${line%|*}"
    if [[ $line == *"|"* ]]; then
        name=LATE_${line##*| }
        read -ra late <<<"${!name}"
    fi
    [[ $file == crates/server/* ]] && bytes=$SERVER_TEST_BYTES
    # The test harness takes --fail-fast only with RUSTC_BOOTSTRAP. The limit of memory ends a loop
    # that allocates.
    export "CARGO_TARGET_${HOST}_RUNNER=prlimit --data=$bytes env RUSTC_BOOTSTRAP=1"
    for name in "${late[@]}"; do
        skips+=(--skip "$name")
    done
    [[ ${MUTANTS_PASS:-quick} == quick ]] && pass "$file" "${tests[@]}" "${skips[@]}"
    [[ ${MUTANTS_PASS:-late} == late ]] && ((${#late[@]})) &&
        pass "$file" --iterate "--timeout=$LATE_SECONDS" "${tests[@]}" "${late[@]}"
    return 0
}

# One run over file $1. Options of cargo-mutants follow, then arguments of `cargo test`: options for
# targets, "--", and names of tests. Without --timeout the tests may take five times their time
# without a mutant, and at least 20 s. 2 and 3 are cargo-mutants' codes for mutants that lived or
# timed out.
pass() {
    local file=$1 out code=0 targets=() more=()
    shift
    while [[ ${1-} == --iterate || ${1-} == --timeout=* ]]; do
        more+=("$1")
        shift
    done
    while (($#)) && [[ $1 != -- ]]; do
        targets+=("--cargo-arg=$1")
        shift
    done
    shift || true
    # shellcheck disable=SC2206 # words
    more+=(${MUTANTS_ARGS:-})
    out=$RESULTS/${file//\//-}
    mkdir -p "$out"
    say "$file"
    nice -n 5 cargo mutants --file "$file" --output "$out" \
        --build-timeout "$BUILD_SECONDS" --colors never --exclude-re "$HINTS" \
        --cargo-arg=--locked "${targets[@]}" "${more[@]}" \
        -- -- -Z unstable-options --fail-fast --test-threads 2 "$@" || code=$?
    ((code == 0 || code == 2 || code == 3)) || die "cargo-mutants ended with $code"
}

main() {
    local file files=("$@")
    [[ ${MUTANTS_PASS-} =~ ^(quick|late)?$ ]] || die "MUTANTS_PASS is quick or late, not $MUTANTS_PASS"
    export PATH=$PWD/.tools/cargo/bin:$PATH
    # The copy has no .v8 of its own.
    export NIGH_V8_DIR=${NIGH_V8_DIR:-$PWD/.v8}
    RESULTS=${CARGO_TARGET_DIR:-$PWD/target}/mutants
    export CARGO_TARGET_DIR=$RESULTS/built CARGO_PROFILE_DEV_DEBUG=0
    HOST=$(rustc -vV | sed -n 's/^host: //p' | tr a-z- A-Z_)
    # Failures needn't be shrunk.
    export PROPTEST_MAX_SHRINK_ITERS=0
    install_cargo_mutants
    exec 9<&-
    ((${#files[@]})) || mapfile -t files < <(awk 'NF { print $1 }' <<<"$TABLE")
    for file in "${files[@]}"; do
        mutate "$file"
    done
}

main "$@"
