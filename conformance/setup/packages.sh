# shellcheck shell=sh
# Debian packages.

# as_root COMMAND...: runs the command as root if the user has consented.
as_root() {
    if [ "${consent-}" != yes ]; then
        return 1
    elif [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        # consent.sh has already asked for a password.
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
    # At runlevel 1 a package does not start its service. The tests start their own servers.
    as_root env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need COMMAND PACKAGE WHAT: installs the Debian package PACKAGE if COMMAND is missing. WHAT names what needs it.
need() {
    if has "$1"; then
        say "$1: $(command -v "$1")"
    elif apt_install "$2" && has "$1"; then
        say "$1: installed from the package $2"
    else
        say "$1 is missing, but $3 need it; install it with: sudo apt-get install $2"
    fi
}
