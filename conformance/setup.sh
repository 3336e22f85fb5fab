#!/bin/sh
# Installs what the targets and the tests need, once. What it cannot install it names, with the command that would;
# the targets that need nothing run all the same, so it never fails.
set -u
cd "$(dirname "$0")/.." || exit

say() { printf 'setup: %s\n' "$*"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as_root apt-get update -qq || return 1
    # At runlevel 1 a package does not start its service: tests start servers of their own, and stop them.
    as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need COMMAND PACKAGE WHAT: makes sure that COMMAND is there, from the Debian package PACKAGE.
need() {
    if command -v "$1" >/dev/null 2>&1; then
        say "$1: $(command -v "$1")"
    elif apt_install "$2" && command -v "$1" >/dev/null 2>&1; then
        say "$1: installed from the package $2"
    else
        say "$1 is missing, and with it $3; install it with: sudo apt-get install $2"
    fi
}

# npm_packages FOLDER WHAT USE: installs what the folder's package-lock.json names, unless that is there.
npm_packages() {
    if cmp -s "$1/package-lock.json" "$1/node_modules/.tidegate-lock.json"; then
        say "$2: $1/node_modules"
    elif npm ci --silent --no-audit --no-fund --prefix "$1" && cp "$1/package-lock.json" "$1/node_modules/.tidegate-lock.json"; then
        say "$2: installed in $1/node_modules"
    else
        say "$2: missing, and with it $3; install it with: npm ci --prefix $1"
    fi
}

need redis-server redis-server "the targets redis and redis-cluster and their tests"
need redis-cli redis-tools "the target redis-cluster and its tests"
need openssl openssl "the tests over TLS"

# shellcheck source=conformance/setup/wasm.sh
. conformance/setup/wasm.sh
# shellcheck source=conformance/setup/cloudflare.sh
. conformance/setup/cloudflare.sh
# shellcheck source=conformance/setup/npm.sh
. conformance/setup/npm.sh
# shellcheck source=conformance/setup/hosts.sh
. conformance/setup/hosts.sh
# shellcheck source=conformance/setup/upstash-rest.sh
. conformance/setup/upstash-rest.sh
