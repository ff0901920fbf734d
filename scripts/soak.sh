#!/usr/bin/env bash
# The long versions of the tests by faults and by chance: scripts/soak.sh [TIMES]
#
# With TIMES 1 it takes about an hour on two cores; all numbers grow with it. `make test` has a short
# version of each but of the last three, which need root, strace and loop devices. It goes on after a
# failure, and says in the end what failed.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
times=${1:-1}
[[ $times =~ ^[1-9][0-9]*$ ]] || { echo "scripts/soak.sh: TIMES is a number from 1 on, not $times" >&2; exit 2; }
nigh=${CARGO_TARGET_DIR:-target}/release/nigh
summary=
failed=0

step() {
    local name=$1 start=$SECONDS result=ok
    shift
    printf '\n== %s\n' "$name"
    "$@" || { result=FAILED; failed=1; }
    summary+="   $name: $result, $((SECONDS - start)) s"$'\n'
}

cargo build --release --locked -p nigh-cli
step "killed servers" env NIGH_KILLS=$((500 * times)) cargo test --release --locked -p nigh-cli \
    --test kills -- kill:: kill_full:: --nocapture
step "thousands of kills" env NIGH_KILLS=$((200 * times)) NIGH_KILL_WRITES=25000 \
    cargo test --release --locked -p nigh-cli --test kills -- kill_many:: --nocapture
step "killed servers with a log" env NIGH_KILLS=$((200 * times)) NIGH_SLACK_MS=100 \
    cargo test --release --locked -p nigh-cli --test kills -- kill_log:: --nocapture
step "a simulated disk under a store" env NIGH_DURABLE_SEEDS=$((500 * times)) \
    cargo test --release --locked -p nigh-store --test store durable -- --nocapture
step "power losses" scripts/cuts.sh $((20000 * times))
step "a simulated disk under a log" env NIGH_FAULTS=6000 NIGH_BITS=1000000 \
    cargo test --release --locked -p nigh-log -- --nocapture
step "a death before each store" env NIGH_STEPS=all cargo test --release --locked -p nigh-shm deaths
step "the rule of reading" env NIGH_RULE_WORKS=3 cargo test --release --locked -p nigh-shm --test rule
step "histories" env NIGH_HISTORY_SECONDS=$((60 * times)) cargo test --release --locked \
    -p nigh-server --test server -- linearizability:: serialisability:: --nocapture
step "moments" env NIGH_MOMENT_SECONDS=$((120 * times)) \
    cargo test --release --locked -p nigh-server --test server -- moments:: --nocapture
step "all together" env NIGH_SOAK_SECONDS=$((120 * times)) \
    cargo test --release --locked -p nigh-cli --test cli no_value_is_torn -- --nocapture
step "local clients" env NIGH_LOCAL_KILLS=$((1000 * times)) NIGH_LOCAL_STOPS=$((300 * times)) \
    NIGH_LOCAL_ROUNDS=$((10 * times)) NIGH_LOCAL_SOAK_SECONDS=$((300 * times)) \
    cargo test --release --locked -p nigh-cli --test cli -- local:: local_client:: --nocapture
for shards in 1 2; do
    for mode in always everysec; do
        step "power cuts of ext4, $mode, $shards shards" tests/faults/power.py --nigh "$nigh" \
            --mode "$mode" --shards "$shards" --rounds $((25 * times))
    done
done
for mode in always everysec; do
    step "each call fails, $mode" tests/faults/each_call.py --nigh "$nigh" --mode "$mode" \
        --every $((300 / times + 1))
done
step "system calls that kill or fail" tests/faults/syscalls.py --nigh "$nigh" --rounds $((200 * times))

printf '\n== soak\n%s' "$summary"
exit $failed
