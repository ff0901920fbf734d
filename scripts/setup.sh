#!/usr/bin/env bash
# Makes sure that Nigh can be built here: tools, and V8 as a shared library with headers.
# It may run again: that takes a fraction of a second if all is there. It may run in parallel.
#
# V8 comes from the first of
#   1. NIGH_V8_DIR, a directory in the layout below (`root` isn't needed): used as it is;
#   2. a system-wide libnode with its V8 headers (Debian: libnode-dev): linked from .v8;
#   3. Debian's libnode and libnode-dev, downloaded and unpacked into .v8, not installed, since
#      libnode-dev conflicts with other packagings of Node.js.
# NIGH_V8_FETCH=1 skips 2. The script takes only a V8 of the branch that crates/js/v8-version names
# (crates/js/build.rs says why), unless NIGH_V8_ANY=1.
#
# The layout, which crates/js/build.rs relies on:
#   .v8/include/v8.h      the headers
#   .v8/lib/libnode.so    for -lnode; beside it libnode.so.N and libcares.so.2
#   .v8/V8_VERSION        one line: the version and the origin of this V8
#   .v8/root/             the unpacked packages; absent in case 2
# The script builds .v8 under another name and renames it when it is whole. So .v8 is whole, or
# absent.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

readonly RUST_MIN_MINOR=90 # Rust 1.90: edition 2024 with the lints that the workspace names

check_tools() {
    local tool missing=() version
    for tool in g++ make git; do
        command -v "$tool" >/dev/null || missing+=("$tool")
    done
    ((${#missing[@]} == 0)) || need_packages "${missing[@]}"
    for tool in cargo rustc; do
        command -v "$tool" >/dev/null || die "$tool not found: install Rust 1.$RUST_MIN_MINOR or later"
    done
    version=$(rustc --version)
    if [[ ! $version =~ ^rustc\ ([0-9]+)\.([0-9]+) ]] ||
        ((BASH_REMATCH[1] == 1 && BASH_REMATCH[2] < RUST_MIN_MINOR)); then
        die "Rust 1.$RUST_MIN_MINOR or later is needed, found: $version"
    fi
}

# True if $1 is a V8 in the layout above.
has_layout() {
    [[ -f $1/include/v8.h && -f $1/include/libplatform/libplatform.h && -e $1/lib/libnode.so ]]
}

# V8's version as headers in $1 state it.
header_version() {
    awk '/define V8_(MAJOR|MINOR)_VERSION|define V8_(BUILD_NUMBER|PATCH_LEVEL)/ { v[n++] = $3 }
        END { printf "%s.%s.%s.%s", v[0], v[1], v[2], v[3] }' "$1/v8-version.h"
}

# True if the headers in $1 have the pinned version (its last number may differ), or if any will do.
is_wanted() {
    local pinned
    pinned=$(<crates/js/v8-version)
    [[ ${NIGH_V8_ANY:-0} == 1 || $(header_version "$1") == "${pinned%.*}".* ]]
}

# Ends with the fault of the headers in $1, which $2 names.
die_of_version() {
    die "$2 is V8 $(header_version "$1"), but Nigh was proved with $(<crates/js/v8-version) (the last" \
        "number may differ): set NIGH_V8_DIR to one, or NIGH_V8_ANY=1 to go on all the same"
}

# Prints "headers library" of a system-wide V8 and succeeds, or fails.
system_v8() {
    local headers library
    for headers in /usr/include/nodejs/deps/v8/include /usr/include/nodejs /usr/include/node \
        /usr/local/include/node; do
        [[ -f $headers/v8.h && -f $headers/libplatform/libplatform.h ]] || continue
        is_wanted "$headers" || continue
        for library in /usr/lib/*-linux-gnu/libnode.so.* /usr/lib64/libnode.so.* \
            /usr/lib/libnode.so.* /usr/local/lib/libnode.so.*; do
            [[ -f $library ]] || continue
            printf '%s %s\n' "$headers" "$library"
            return 0
        done
    done
    return 1
}

link_system_v8() {
    local into=$1 headers=$2 library=$3
    mkdir -p "$into/lib"
    ln -s "$headers" "$into/include"
    ln -s "$library" "$into/lib/${library##*/}"
    ln -s "${library##*/}" "$into/lib/libnode.so"
    printf '%s (%s, system-wide)\n' "$(header_version "$headers")" "$library" >"$into/V8_VERSION"
}

fetch_v8() {
    local into=$1 state=$1/state debs=$1/debs package library headers deb
    local libnode version
    command -v dpkg >/dev/null ||
        die "no V8 found and no dpkg to fetch one: install libnode with its headers, or set NIGH_V8_DIR"
    say "fetching V8 (Debian's libnode) into .v8"
    mkdir -p "$state"
    private_apt_update "$state"
    libnode=$(private_apt "$state" apt-cache depends libnode-dev |
        awk '$1 == "Depends:" && $2 ~ /^libnode[0-9]/ { print $2; exit }')
    [[ -n $libnode ]] || die "this distribution's libnode-dev depends on no libnode: set NIGH_V8_DIR"
    fetch_debs "$state" "$debs" "$libnode" libnode-dev libc-ares2
    for deb in "$debs"/*.deb; do
        dpkg -x "$deb" "$into/root"
    done
    version=$(dpkg-deb -f "$debs/${libnode}"_*.deb Version)

    headers=$(cd "$into" && find root/usr/include -name v8.h -path '*include/v8.h' | head -n 1)
    [[ -n $headers ]] || die "libnode-dev $version holds no v8.h: set NIGH_V8_DIR"
    ln -s "${headers%/v8.h}" "$into/include"
    mkdir "$into/lib"
    for library in "$into"/root/usr/lib/*/{libnode,libcares}.so.*; do
        ln -s "../${library#"$into/"}" "$into/lib/${library##*/}"
    done
    library=$(cd "$into/lib" && printf '%s\n' libnode.so.* | head -n 1)
    ln -s "$library" "$into/lib/libnode.so"
    # The other libraries that libnode needs come from the system; this remembers their packages.
    dpkg-deb -f "$debs/${libnode}"_*.deb Depends | tr ',' '\n' |
        awk '$1 !~ /^(libc-ares2|libc6|libgcc-s1|libstdc\+\+6|node-.*)$/ { print $1 }' >"$into/depends"
    printf '%s (%s %s, fetched)\n' "$(header_version "$into/include")" "$libnode" "$version" \
        >"$into/V8_VERSION"
    rm -rf "$state" "$debs"
}

# Builds .v8 under another name, then renames it.
make_v8() {
    local fresh found
    mkdir -p .tools
    fresh=$(mktemp -d "$PWD/.tools/v8.XXXXXX")
    # shellcheck disable=SC2064 # the name is known now
    trap "rm -rf '$fresh'" EXIT
    if [[ ${NIGH_V8_FETCH:-0} != 1 ]] && found=$(system_v8); then
        # shellcheck disable=SC2086 # two words: headers and library
        link_system_v8 "$fresh" $found
    else
        fetch_v8 "$fresh"
    fi
    has_layout "$fresh" || die "what was found as V8 lacks v8.h or libnode.so: set NIGH_V8_DIR"
    is_wanted "$fresh/include" || die_of_version "$fresh/include" "this distribution's libnode"
    chmod 755 "$fresh"
    rm -rf .v8
    mv -T "$fresh" .v8
    trap - EXIT
}

# Makes sure that the V8 in $1 finds all libraries it needs.
check_libraries() {
    local dir=$1 missing packages=()
    missing=$(missing_libraries "$dir/lib" "$dir/lib/libnode.so")
    [[ -n $missing ]] || return 0
    if [[ -f $dir/depends ]]; then
        mapfile -t packages <"$dir/depends"
        need_packages "${packages[@]}"
        missing=$(missing_libraries "$dir/lib" "$dir/lib/libnode.so")
    fi
    [[ -z $missing ]] || die "V8 in $dir lacks shared libraries: ${missing//$'\n'/ }"
}

main() {
    check_tools
    local dir=.v8
    if [[ -n ${NIGH_V8_DIR:-} ]]; then
        dir=$NIGH_V8_DIR
        [[ $dir == /* ]] || die "NIGH_V8_DIR=$dir must be an absolute path"
        has_layout "$dir" ||
            die "NIGH_V8_DIR=$dir lacks include/v8.h, include/libplatform or lib/libnode.so"
        is_wanted "$dir/include" || die_of_version "$dir/include" "NIGH_V8_DIR=$dir"
        check_libraries "$dir"
        say "V8 $(header_version "$dir/include") in $dir (NIGH_V8_DIR)"
        return
    fi
    exec 9<scripts # a lock on the folder itself: leaves no file, needs no right to write
    flock 9
    { has_layout .v8 && is_wanted .v8/include; } || make_v8
    check_libraries .v8
    say "V8 $(cat .v8/V8_VERSION)"
}

main "$@"
