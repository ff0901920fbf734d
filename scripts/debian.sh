# shellcheck shell=bash
# Gets Debian packages without a change of the system: downloads them with private package lists,
# and unpacks them without installing. setup.sh and test-tools.sh source this file, which only defines
# functions.
#
# Only `need_packages` needs root. Nothing here starts a service: packages with a daemon are
# unpacked (`fetch_debs`, `dpkg -x`), never installed.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { say "$*"; exit 1; }

# Runs an apt tool with state of its own under $1, so that it works without root and with empty
# package lists, and neither reads nor changes the system's lists.
private_apt() {
    local state=$1 tool=$2
    shift 2
    "$tool" -q \
        -o Dir::State="$state/apt" -o Dir::State::lists="$state/apt/lists" \
        -o Dir::Cache="$state/apt/cache" -o Dir::State::status=/var/lib/dpkg/status \
        -o Dir::Log="$state/apt" -o Debug::NoLocking=1 -o APT::Sandbox::User= "$@"
}

# Fills the private package lists under $1.
private_apt_update() {
    local state=$1
    command -v apt-get >/dev/null || die "apt-get not found: this needs Debian or Ubuntu"
    mkdir -p "$state/apt/lists/partial" "$state/apt/cache/archives/partial"
    private_apt "$state" apt-get update >"$state/apt.log" 2>&1 ||
        { cat "$state/apt.log" >&2; die "apt-get update failed: see above"; }
}

# Downloads packages $3... with the lists under $1 into $2.
fetch_debs() {
    local state=$1 into=$2
    shift 2
    mkdir -p "$into"
    (cd "$into" && private_apt "$state" apt-get download "$@" >"$state/apt.log" 2>&1) ||
        { cat "$state/apt.log" >&2; die "download of $* failed: see above"; }
}

# Names of packages of $@ that are not installed.
missing_packages() {
    local package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
            printf '%s ' "$package"
    done
}

# Installs packages $@ as root; as another user names them in one line and fails. The lists are
# private, so the system's may be empty. Only libraries and tools are installed.
need_packages() {
    local missing state
    missing=$(missing_packages "$@")
    [[ -n $missing ]] || return 0
    [[ $(id -u) == 0 ]] || die "missing packages, install as root: apt-get install ${missing% }"
    say "installing ${missing% }"
    state=$(mktemp -d)
    private_apt_update "$state"
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive private_apt "$state" apt-get install -y \
        --no-install-recommends $missing >"$state/apt.log" 2>&1 ||
        { tail -n 20 "$state/apt.log" >&2; die "apt-get install ${missing% } failed: see above"; }
    rm -rf "$state"
}

# Libraries that the programs and libraries $2... miss when $1 is searched first, one a line.
missing_libraries() {
    local path=$1
    shift
    LD_LIBRARY_PATH=$path ldd "$@" 2>/dev/null | awk '/not found/ { print $1 }' | sort -u
}
