#!/usr/bin/env bash
# What a local client costs in Node.js, beside ioredis over the Unix socket of the same server.
#
#   scripts/bench-client-node.sh [KEYS...]    by default 1000000 and 1000
#
# Builds the package and the server, installs the package in a folder of its own, and prints a table
# in Markdown. The server has one core, Node.js another.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
[[ -d .tools/node/node_modules ]] || { echo "ioredis is missing: run scripts/test-tools.sh" >&2; exit 2; }
nigh=${NIGH_BIN:-$target/release/nigh}
[[ -x $nigh ]] || { echo "$nigh is missing: run make build, or set NIGH_BIN" >&2; exit 2; }
cargo build --release --locked -q -p nigh-node

app=$(mktemp -d)
memory=$(mktemp -d /dev/shm/nigh-bench-XXXXXX)
server=
cleanup() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    [[ -z $server ]] || wait "$server" 2>/dev/null || true
    rm -rf "$app" "$memory"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

package=$(scripts/pack-node.sh "$target/release" "$app")
(cd "$app" && npm install --silent --offline --no-audit --no-fund "$package")
taskset -c 0 "$nigh" serve --port 0 --unixsocket "$app/socket" --shm-dir "$memory" --shards 1 \
    --appendonly no --maxmemory 1073741824 >"$app/log" 2>&1 &
server=$!
for _ in {1..100}; do [[ -S $app/socket ]] && break; sleep 0.05; done
cd "$app"
NODE_PATH=$app/node_modules:$root/.tools/node/node_modules \
    taskset -c 1 node "$root/scripts/bench-client-node.js" "$app/socket" "$@"
