#!/usr/bin/env bash
# Runs Nigh beside Debian's Redis and the floor, writes docs/benchmarks.md and its chart.
# Arguments go to `nigh bench peers`: --pairs 3 --seconds 0.5 makes it short.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
nigh=${NIGH:-${CARGO_TARGET_DIR:-target}/release/nigh}
exec "$nigh" bench peers --redis "$PWD/.tools/bin/redis-server" "$@"
