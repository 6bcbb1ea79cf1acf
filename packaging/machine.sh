# What ./try and ./check need of a machine, sourced by both: Debian packages, Rust, a place to build.
# Must never remove or reconfigure anything, and never start a service.

RUST_WANTED=1.95.0
RUST_SERVER=${RUSTUP_UPDATE_ROOT:-https://static.rust-lang.org/rustup}

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else bold='' dim='' green='' red='' plain=''; fi

title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
say() { printf '%s\n' "$*"; }
stop() { printf '%s%s%s\n' "$red" "$*" "$plain" >&2; exit 1; }

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# need_packages NAME...: as root installs what is missing, else prints one line to copy and stops.
need_packages() {
    local missing=() name
    for name in "$@"; do is_installed "$name" || missing+=("$name"); done
    [ ${#missing[@]} -eq 0 ] && return
    command -v apt-get >/dev/null || stop "This machine has no apt-get; install: ${missing[*]}"
    local line="apt-get install -y --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        say "Some Debian packages are missing. Please run this line, then come back:"
        say
        say "    sudo $line"
        say
        exit 1
    fi
    title "Installing ${missing[*]}"
    # Daemons that are installed as dependencies must not start.
    local policy=/usr/sbin/policy-rc.d made_policy=''
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy && chmod 755 $policy && made_policy=yes
    fi
    local well=yes
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive $line -q -o Dpkg::Use-Pty=0; } || well=''
    [ -z "$made_policy" ] || rm -f $policy
    [ -n "$well" ] || stop "apt-get could not install ${missing[*]}"
}

# is_new_enough CARGO: whether this cargo is of Rust $RUST_WANTED or newer.
is_new_enough() {
    local version
    version=$("$1" --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$RUST_WANTED" "${version%%-*}" | sort -V | head -n1)" = "$RUST_WANTED" ]
}

# need_rust [COMPONENT...]: leaves a cargo that is new enough first in PATH.
need_rust() {
    local home=${CARGO_HOME:-$HOME/.cargo} component
    if ! is_new_enough cargo; then PATH=$home/bin:$PATH; fi
    if ! is_new_enough cargo; then
        local host dir
        host=$(uname -m)-unknown-linux-gnu
        dir=$(mktemp -d)
        title "Installing Rust $RUST_WANTED into $home (nothing outside of it changes)"
        curl -fsSL --retry 3 -o "$dir/rustup-init" "$RUST_SERVER/dist/$host/rustup-init" &&
            curl -fsSL --retry 3 -o "$dir/sha256" "$RUST_SERVER/dist/$host/rustup-init.sha256" ||
            stop "Rust's installer could not be fetched from $RUST_SERVER"
        [ "$(sha256sum <"$dir/rustup-init" | cut -d' ' -f1)" = "$(cut -d' ' -f1 "$dir/sha256")" ] ||
            stop "Rust's installer came damaged from $RUST_SERVER"
        chmod +x "$dir/rustup-init"
        RUSTUP_INIT_SKIP_PATH_CHECK=yes "$dir/rustup-init" -y -q --no-modify-path --profile minimal \
            --default-toolchain "$RUST_WANTED" ${1:+--component "$(IFS=,; echo "$*")"} >/dev/null ||
            stop "Rust's installer failed"
        rm -rf "$dir"
        hash -r
    fi
    for component in "$@"; do
        cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1 && continue
        rustup component add "$component" || stop "Rust's $component is missing"
    done
}

# need_place DIRECTORY: stops, and says whose it is, where we cannot write in it.
need_place() {
    local place=$1
    [ -e "$place" ] || place=$(dirname -- "$place")
    [ -w "$place" ] && [ -x "$place" ] && return
    stop "$(realpath -- "$place") belongs to $(stat -c %U -- "$place"), and $(id -un) cannot write there.
Clone the repository anew as $(id -un), or ask $(stat -c %U -- "$place") to run this."
}
