#!/usr/bin/env bash
# Runs Nigh beside Debian's Redis and the floor, writes docs/benchmarks.md and its chart.
# Arguments go to `nigh-bench peers`: --pairs 3 --seconds 0.5 makes it short.
# NIGH names another server than the nigh beside nigh-bench.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
bench=${CARGO_TARGET_DIR:-target}/release/nigh-bench
exec "$bench" peers ${NIGH:+--nigh "$NIGH"} --redis "$PWD/.tools/bin/redis-server" "$@"
