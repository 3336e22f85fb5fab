# shellcheck shell=sh
# Debian's packages.

# as_root COMMAND...: runs it as root, if that was consented to.
as_root() {
    if [ "${consent-}" != yes ]; then
        return 1
    elif [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        # Consent has asked for a password where one is needed.
        has sudo && sudo -n "$@"
    fi
}

apt_updated=

apt_install() {
    has apt-get || return 1
    if [ -z "$apt_updated" ]; then
        as_root apt-get update -qq || return 1
        apt_updated=yes
    fi
    # At runlevel 1 a package does not start its service: the tests start and stop servers of their own.
    as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need COMMAND PACKAGE WHAT: makes sure that COMMAND is there, which WHAT needs and the Debian package PACKAGE brings.
need() {
    if has "$1"; then
        say "$1: $(command -v "$1")"
    elif apt_install "$2" && has "$1"; then
        say "$1: installed from the package $2"
    else
        say "$1 is missing, which $3 need; install it with: sudo apt-get install $2"
    fi
}
