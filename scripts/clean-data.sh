#!/usr/bin/env bash
# Removes the arenas of stopped servers from tmpfs: /dev/shm/nigh-*, of this user only.
# It keeps and names a folder if a process still has one of its files open or mapped.
set -euo pipefail

in_use() {
    # Both kinds of use: a mapping outlives its descriptor, and a lock is a descriptor.
    grep -qsF "$1/" /proc/[0-9]*/maps && return 0
    # It fails at processes of other users, and goes on: what it finds counts, not its code.
    [[ -n $(find /proc/[0-9]*/fd -lname "$1/*" -print -quit 2>/dev/null || true) ]]
}

shopt -s nullglob
for folder in /dev/shm/nigh-*; do
    [[ -d $folder && ! -L $folder && -O $folder ]] || continue
    if in_use "$folder"; then
        printf 'in use, kept: %s\n' "$folder"
    else
        rm -rf -- "$folder"
        printf 'removed: %s\n' "$folder"
    fi
done
