#!/usr/bin/env bash
# Gets the tools of the tests into .tools: Debian's Redis programs, redis-py and ioredis.
# It may run again: that takes a fraction of a second if all is there. It may run in parallel.
#
#   scripts/test-tools.sh             all three
#   scripts/test-tools.sh python      the Python environment alone, with what builds the wheel
#
#   .tools/bin/{redis-server,redis-cli,redis-benchmark}   unpacked, not installed: no service
#   .tools/venv/bin/python        with tests/clients/requirements.txt
#   .tools/node/node_modules      with tests/clients/node/package-lock.json
#
# The script builds each part under another name and renames it. A stamp tells the part's sources.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

readonly REDIS_SERIES=7.0 # what the differential test knows: its table says what later ones changed

# True if the stamp in folder $1 says $2.
is_made_from() { [[ -f $1/stamp && $(<"$1/stamp") == "$2" ]]; }

# Puts the whole folder $1 in the place of $2, with the stamp $3.
put_in_place() {
    printf '%s\n' "$3" >"$1/stamp"
    chmod 755 "$1"
    rm -rf "$2"
    mv -T "$1" "$2"
}

# Python, and for all parts Node.js and pkg-config, come from the distribution. Missing packages are
# named, or installed, all at once.
check_packages() {
    local packages=()
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3 python3-venv)
    if [[ $1 == all ]]; then
        command -v node >/dev/null || packages+=(nodejs)
        command -v npm >/dev/null || packages+=(npm)
        command -v pkg-config >/dev/null || packages+=(pkg-config)
    fi
    ((${#packages[@]} == 0)) || need_packages "${packages[@]}"
}

make_redis() {
    local fresh state debs package program deb packages=()
    is_made_from .tools/redis "$REDIS_SERIES" && return
    say "fetching Debian's redis-server into .tools"
    fresh=$(mktemp -d "$PWD/.tools/new.XXXXXX")
    state=$fresh/state debs=$fresh/debs
    mkdir "$state"
    private_apt_update "$state"
    fetch_debs "$state" "$debs" redis-server redis-tools
    mapfile -t packages < <(dpkg-deb -f "$debs"/redis-tools_*.deb Depends | tr ',' '\n' |
        awk '$1 !~ /^(adduser|libc6)$/ { print $1 }')
    # Libraries of the system are used; the missing ones are unpacked beside the programs.
    read -ra packages < <(missing_packages "${packages[@]}"; echo)
    ((${#packages[@]} == 0)) || fetch_debs "$state" "$debs" "${packages[@]}"
    for deb in "$debs"/*.deb; do
        dpkg -x "$deb" "$fresh/root"
    done
    mkdir "$fresh/lib"
    find "$fresh/root" -path '*/lib/*-linux-gnu/*.so.*' -exec mv -t "$fresh/lib" {} +
    for program in redis-server redis-cli redis-benchmark; do
        deb=$(missing_libraries "$fresh/lib" "$fresh/root/usr/bin/$program")
        [[ -z $deb ]] || die "$program lacks shared libraries: ${deb//$'\n'/ }"
    done
    package=$(LD_LIBRARY_PATH=$fresh/lib "$fresh/root/usr/bin/redis-server" --version)
    [[ $package == *" v=$REDIS_SERIES."* ]] ||
        die "Redis $REDIS_SERIES is what the tests compare with, the distribution has: $package"
    rm -rf "$state" "$debs"
    put_in_place "$fresh" .tools/redis "$REDIS_SERIES"
}

# A command for each Redis program, which finds the libraries that were unpacked beside it.
make_commands() {
    local program
    mkdir -p .tools/bin
    for program in redis-server redis-cli redis-benchmark; do
        # shellcheck disable=SC2016 # expanded when the command runs
        printf '#!/bin/sh\nredis=${0%%/*}/../redis\nLD_LIBRARY_PATH=$redis/lib exec "$redis/root/usr/bin/%s" "$@"\n' \
            "$program" >".tools/bin/$program.new"
        chmod 755 ".tools/bin/$program.new"
        mv ".tools/bin/$program.new" ".tools/bin/$program"
    done
}

make_python() {
    local stamp
    stamp="$(cksum <tests/clients/requirements.txt) $PWD"
    is_made_from .tools/venv "$stamp" && [[ -x .tools/venv/bin/python ]] && return
    say "making a Python environment with $(grep -c '^[a-z]' tests/clients/requirements.txt) pins"
    # A venv knows its own path, so it can't be built under another name. The stamp comes last
    # instead.
    rm -rf .tools/venv
    python3 -m venv .tools/venv
    .tools/venv/bin/pip install -q --disable-pip-version-check \
        -r tests/clients/requirements.txt || die "pip install failed: see above"
    printf '%s\n' "$stamp" >.tools/venv/stamp
}

make_node() {
    local stamp fresh
    stamp=$(cat tests/clients/node/package*.json | cksum)
    is_made_from .tools/node "$stamp" && command -v node >/dev/null && return
    say "installing ioredis"
    fresh=$(mktemp -d "$PWD/.tools/new.XXXXXX")
    cp tests/clients/node/package.json tests/clients/node/package-lock.json "$fresh"
    (cd "$fresh" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >npm.log 2>&1) ||
        { cat "$fresh/npm.log" >&2; die "npm ci failed: see above"; }
    put_in_place "$fresh" .tools/node "$stamp"
}

main() {
    local part=${1:-all}
    [[ $part == all || $part == python ]] || die "unknown part $part: all or python"
    mkdir -p .tools
    exec 9<tests/clients # a lock on the folder itself: leaves no file, needs no right to write
    flock 9
    trap 'rm -rf .tools/new.*' EXIT
    check_packages "$part"
    if [[ $part == python ]]; then
        make_python
        return
    fi
    make_redis
    [[ -x .tools/bin/redis-benchmark ]] || make_commands
    make_python
    make_node
    say "redis, redis-py and ioredis are in .tools"
}

main "$@"
