# shellcheck shell=sh
# Consent to changes outside the checkout: Debian packages, rustup's targets and toolchains, and libraries beside
# Debian's rustc.
#
# Root consents by running the setup. Another user is asked once on a terminal. Without a terminal, nothing is changed
# and the commands are printed. TIDEGATE_SETUP=yes consents beforehand. TIDEGATE_SETUP=no refuses, also for root.

# changes: prints the changes outside the checkout that the selected groups need, one per line.
changes() {
    sudo="sudo "
    [ "$(id -u)" -ne 0 ] || sudo=
    packages=
    if wanted redis peers; then
        has redis-server || packages="$packages redis-server"
        has redis-cli || packages="$packages redis-tools"
    fi
    if wanted postgres && ! has postgres && ! ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1; then
        packages="$packages postgresql"
    fi
    if wanted peers; then
        has faketime || packages="$packages faketime"
    fi
    if wanted tests; then
        has python3 || packages="$packages python3"
        has openssl || packages="$packages openssl"
        has chromium || packages="$packages chromium"
        has chromedriver || packages="$packages chromium-driver"
    fi
    [ -z "$packages" ] || echo "${sudo}apt-get install$packages"
    if wanted npm cloudflare; then
        wasm_changes wasm32-unknown-unknown
    fi
    if wanted spin fastly; then
        wasm_changes wasm32-wasip1
    fi
}

# wasm_changes TARGET: prints the changes that are needed to build for the target.
wasm_changes() {
    ! wasm_found "$1" >/dev/null || return 0
    if has rustup; then
        echo "rustup target add $1"
        echo "or, if rustup cannot install it:"
    fi
    echo "  ${sudo}apt-get install $(debian_packages "$1")"
    echo "  a standard library for $1, copied to Debian's rustc, with a link to its linker"
    ! has rustup || echo "  rustup toolchain link tidegate-wasm /usr"
}

# consent: sets consent to yes or no. Announces the changes, and asks if necessary.
consent() {
    case ${TIDEGATE_SETUP-} in
    yes | no) consent=$TIDEGATE_SETUP ;;
    "") consent= ;;
    *)
        echo "setup: TIDEGATE_SETUP is \"$TIDEGATE_SETUP\"; write yes or no" >&2
        exit 2
        ;;
    esac
    changes=$(changes)
    if [ -z "$consent" ]; then
        ask
    fi
    # Ask for the password now, so that no later step waits for it.
    if [ "$consent" = yes ] && [ -n "$changes" ] && [ "$(id -u)" -ne 0 ] && [ -t 0 ] && has sudo; then
        sudo -v || say "sudo failed; skipping everything that needs it"
    fi
}

# ask: sets consent according to the user and to the answer on the terminal.
ask() {
    if [ -z "$changes" ]; then
        consent=yes
    elif [ "$(id -u)" -eq 0 ]; then
        consent=yes
        say "changes outside the checkout, because root runs this:"
        announce
    elif [ -t 0 ]; then
        say "changes outside the checkout:"
        announce
        printf 'setup: make these changes? [y/N] '
        read -r answer || answer=
        case $answer in
        [Yy] | [Yy][Ee][Ss]) consent=yes ;;
        *) consent=no ;;
        esac
    else
        consent=no
        say "these changes outside the checkout need consent: make them yourself, or set TIDEGATE_SETUP=yes"
        announce
    fi
}

announce() {
    printf '%s\n' "$changes" | while IFS= read -r line; do say "  $line"; done
}
