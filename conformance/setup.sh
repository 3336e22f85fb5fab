#!/bin/sh
# Installs what the targets and the tests need and this machine lacks.
#
#     conformance/setup.sh [--ask] [GROUP]...
#
# GROUP is one of redis, postgres, npm, cloudflare, spin, fastly, peers and tests. The default is all of them. Most programs are
# installed in the checkout. Changes elsewhere need consent, which setup/consent.sh describes. With --ask, the script
# only announces these changes and asks for consent. It exits with 0 if it may make them, and with 1 otherwise.
#
# The script does not fail if something cannot be installed, because the other targets can still run. It prints the
# command that would install it, and continues.
set -u
cd "$(dirname "$0")/.." || exit 2

all="redis postgres npm cloudflare spin fastly peers tests"
groups=
ask_only=
for argument; do
    case $argument in
    --ask) ask_only=yes ;;
    redis | postgres | npm | cloudflare | spin | fastly | peers | tests) groups="$groups $argument" ;;
    *)
        echo "setup: $argument is not a group; the groups are $all" >&2
        exit 2
        ;;
    esac
done
: "${groups:=$all}"

say() { printf 'setup: %s\n' "$*"; }

# has COMMAND: whether the command is on the path.
has() { command -v "$1" >/dev/null 2>&1; }

# wanted GROUP...: whether one of these groups was selected.
wanted() {
    for group in $groups; do
        for one; do [ "$group" != "$one" ] || return 0; done
    done
    return 1
}

# shellcheck source=conformance/setup/packages.sh
. conformance/setup/packages.sh
# shellcheck source=conformance/setup/wasm.sh
. conformance/setup/wasm.sh
# shellcheck source=conformance/setup/tools.sh
. conformance/setup/tools.sh
# shellcheck source=conformance/setup/consent.sh
. conformance/setup/consent.sh

consent
if [ -n "$ask_only" ]; then
    [ "$consent" = yes ]
    exit
fi
if needs_hosts; then begin_hosts; fi
for group in $groups; do
    # shellcheck source=/dev/null
    . "conformance/setup/$group.sh"
    # `tidegate run --setup` waits for this line.
    say "$group: done"
done
