#!/usr/bin/env bash
# Checks that the libraries which `make bench-embedded` compares with are there: Debian's LevelDB,
# RocksDB and LMDB, with headers. As root it installs what is missing; as another user it names that.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/debian.sh
source scripts/debian.sh

# Elsewhere than on Debian the build tells which header it doesn't find.
command -v dpkg-query >/dev/null || exit 0
need_packages libleveldb-dev librocksdb-dev liblmdb-dev
