#!/usr/bin/env bash
# Measures local clients beside other stores, and writes docs/benchmarks-local.md and its picture.
# Arguments go to `nigh-bench local`: --rounds 3 --seconds 0.2 makes it short.
#
# Gets Debian's memcached into .tools, and builds what measures LMDB (benches/embedded), the wheel
# and the package for Node.js. What can't be had is left out: the page says so.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

root=$PWD
target=$root/target
if [[ -n ${CARGO_TARGET_DIR:-} ]]; then
    # Some builds begin in another folder, where a relative path would name another one.
    CARGO_TARGET_DIR=$(realpath -m -- "$CARGO_TARGET_DIR")
    export CARGO_TARGET_DIR
    target=$CARGO_TARGET_DIR
fi
given=(--redis "$root/.tools/bin/redis-server")
app=$(mktemp -d)
trap 'rm -rf "$app" .tools/new-memcached.*' EXIT

get_memcached() {
    local fresh packages=()
    [[ -x .tools/memcached/root/usr/bin/memcached ]] && return
    say "fetching Debian's memcached into .tools"
    fresh=$(mktemp -d "$root/.tools/new-memcached.XXXXXX")
    mkdir "$fresh/state" "$fresh/lib"
    private_apt_update "$fresh/state"
    fetch_debs "$fresh/state" "$fresh/debs" memcached
    mapfile -t packages < <(dpkg-deb -f "$fresh"/debs/memcached_*.deb Depends | tr ',' '\n' |
        awk '$1 ~ /^lib/ && $1 !~ /^libc6/ { print $1 }')
    read -ra packages < <(missing_packages "${packages[@]}"; echo)
    ((${#packages[@]} == 0)) || fetch_debs "$fresh/state" "$fresh/debs" "${packages[@]}"
    for deb in "$fresh"/debs/*.deb; do dpkg -x "$deb" "$fresh/root"; done
    find "$fresh/root" -path '*/lib/*-linux-gnu/*.so.*' -exec mv -t "$fresh/lib" {} +
    rm -rf "$fresh/state" "$fresh/debs" .tools/memcached
    # A command that finds the libraries beside it.
    printf '#!/bin/sh\nhere=${0%%/*}\nLD_LIBRARY_PATH=$here/lib exec "$here/root/usr/bin/memcached" "$@"\n' \
        >"$fresh/memcached"
    chmod 755 "$fresh" "$fresh/memcached"
    [[ $("$fresh/memcached" --version) == memcached* ]] || die "memcached doesn't run: see above"
    mv -T "$fresh" .tools/memcached
}

# Each in a shell of its own: one that fails is left out.
if (get_memcached); then given+=(--memcached "$root/.tools/memcached/memcached"); fi
if (scripts/bench-embedded-setup.sh && cd benches/embedded && cargo build --release --locked); then
    embedded=${CARGO_TARGET_DIR:-$root/benches/embedded/target}/release/nigh-bench-embedded
    given+=(--lmdb "${embedded@Q} beside") # quoted: a shell reads it
fi
if (make -s wheel && .tools/venv/bin/pip install -q --disable-pip-version-check \
    --target "$app/python" "$target"/wheels/nigh-*.whl); then
    export PYTHONPATH=$app/python
    script=$root/tests/clients/local_client_figures.py
    given+=(--python "${root@Q}/.tools/venv/bin/python ${script@Q}")
fi
if (make -s node && mkdir "$app/node" && cd "$app/node" &&
    npm install --silent --offline --no-audit --no-fund "$target"/node/nigh-*.tgz); then
    export NODE_PATH=$app/node/node_modules
    script=$root/scripts/bench-client-node.js
    given+=(--node "node ${script@Q}")
fi
"$target/release/nigh-bench" local "${given[@]}" --out docs/benchmarks-local.md "$@"
