#!/usr/bin/env bash
# Installs the library for C, embedded and client: headers, shared and static library, pkg-config
# file.
#
#   scripts/install-c.sh FOLDER PREFIX    FOLDER has libnigh_c.so and libnigh_c.a: target/release
#
# DESTDIR goes before PREFIX where files are put, and not into nigh.pc.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# == 2)) || { echo "usage: scripts/install-c.sh FOLDER PREFIX" >&2; exit 2; }
readonly from=$1 prefix=$2 crate=crates/nigh-c
[[ $prefix == /* ]] || { echo "install-c.sh: PREFIX=$prefix must be an absolute path" >&2; exit 2; }

readonly into=${DESTDIR:-}$prefix
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
# The name that the library itself says, so that there is one place for it.
soname=$(sed -n 's/^const SONAME: &str = "\(.*\)";$/\1/p' $crate/build.rs)
file=libnigh.so.$version

install -d "$into/lib/pkgconfig" "$into/include"
install -m 644 $crate/include/nigh.h $crate/include/nigh_client.h "$into/include"
install -m 755 "$from/libnigh_c.so" "$into/lib/$file"
ln -sf "$file" "$into/lib/$soname"
ln -sf "$file" "$into/lib/libnigh.so"
install -m 644 "$from/libnigh_c.a" "$into/lib/libnigh.a"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" $crate/nigh.pc.in >"$into/lib/pkgconfig/nigh.pc"
