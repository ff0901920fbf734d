#!/usr/bin/env bash
# Simulated power losses: scripts/cuts.sh CUTS
#
# CUTS of a log, at any system call, with kills between; and a tenth of that number of a store in each
# mode, between the passes of its log's thread. Each prints how far it is, and one line of figures.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cuts=${1:-}
[[ $cuts =~ ^[1-9][0-9]*$ ]] || { echo "scripts/cuts.sh: CUTS is a number from 1 on, not $cuts" >&2; exit 2; }

NIGH_POWER_CUTS=$cuts cargo test --release --locked -p nigh-log --test log power_cuts_and_kills \
    -- --nocapture
NIGH_POWER_CUTS=$((cuts / 10 + 1)) cargo test --release --locked -p nigh-store --test store \
    by_power_cuts -- --nocapture
