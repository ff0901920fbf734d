#!/usr/bin/env bash
# Makes the package for Node.js, of the embedded library and the client, for `npm install`.
#
#   scripts/pack-node.sh FOLDER INTO    FOLDER has libnigh_node.so: target/release
#
# Prints the path of the package, INTO/nigh-VERSION.tgz.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

(($# == 2)) || { echo "usage: scripts/pack-node.sh FOLDER INTO" >&2; exit 2; }
readonly from=$1 crate=crates/nigh-node
mkdir -p "$2"
into=$(cd "$2" && pwd)

rm -rf "$into/package"
mkdir "$into/package"
install -m 644 $crate/*.js $crate/*.d.ts $crate/package.json LICENSE "$into/package"
# Without what only a debugger reads: most of the file.
strip --strip-debug -o "$into/package/nigh.node" "$from/libnigh_node.so"
version=$(sed -n 's/^ *"version": "\(.*\)",$/\1/p' $crate/package.json)
# As `npm pack` does it; npm is hundreds of packages of Debian's, and needed by the installation
# alone.
tar --sort=name --owner=0 --group=0 --numeric-owner -czf "$into/nigh-$version.tgz" -C "$into" package
echo "$into/nigh-$version.tgz"
