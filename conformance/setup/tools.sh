# shellcheck shell=sh
# Programs from crates.io and packages from npm. All are installed in the checkout.

tools=target/tools

# cargo_tool CRATE VERSION PROGRAM WHAT: installs a program unless this version is present. WHAT names what needs it.
cargo_tool() {
    if grep -qs "^\"$1 $2 " "$tools/.crates.toml"; then
        say "$1 $2: $tools/bin/$3"
        return
    fi
    say "installing $1 $2, which takes a minute or two"
    # Without optimisation and debug information, which would take minutes for a program that runs for a second, and without the crate's
    # other programs.
    install="cargo install --debug --bin $3 --root $tools --version $2 $1"
    log=target/tools-build/$1.log
    mkdir -p target/tools-build
    if cargo_install --locked 2>"$log"; then
        say "$1 $2: installed in $tools"
        return
    fi
    cat "$log" >&2
    # A mirror of crates.io may lack a version that the program's lock file names.
    if grep -q "failed to select a version" "$log"; then
        say "this registry lacks a version in the lock file of $1 (see above); installing it with the versions that the registry has"
        cargo_install && say "$1 $2: installed in $tools, without its lock file" && return
    fi
    say "$1 is missing, but $4 need it; see the error above, and retry with: $install --locked"
}

# cargo_install [--locked]: runs `$install`.
cargo_install() {
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=target/tools-build $install --quiet "$@"
}

# wasm_bindgen WHAT: installs the version of wasm-bindgen in Cargo.lock.
wasm_bindgen() {
    version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)
    cargo_tool wasm-bindgen-cli "$version" wasm-bindgen "$1"
}

# npm_packages FOLDER WHAT USE: installs the packages in the folder's package-lock.json unless they are present.
npm_packages() {
    if ! has npm; then
        say "npm is missing, but $3 need it; install it with: sudo apt-get install npm"
    elif cmp -s "$1/package-lock.json" "$1/node_modules/.tidegate-lock.json"; then
        say "$2: $1/node_modules"
    elif npm ci --silent --no-audit --no-fund --prefix "$1" && cp "$1/package-lock.json" "$1/node_modules/.tidegate-lock.json"; then
        say "$2: installed in $1/node_modules"
    else
        say "$2: missing, but $3 need it; install it with: npm ci --prefix $1"
    fi
}

hosts="cargo build --release --locked --workspace --manifest-path conformance/hosts/Cargo.toml --target-dir target/hosts"
building_hosts=
hosts_built=

# begin_hosts: starts to build the suite's hosts, which run guests, while the setup goes on: their largest crates keep one core busy for
# minutes. They are built together, because building one alone would compile the engine again with different features.
begin_hosts() {
    say "building the hosts for Spin and Compute apps, which takes minutes the first time"
    began=$(date +%s)
    mkdir -p target
    $hosts --quiet >target/hosts.log 2>&1 &
    building_hosts=$!
    # An interrupt does not reach a shell's background processes.
    trap 'kill "$building_hosts" 2>/dev/null; exit 130' INT TERM
}

# needs_hosts: whether a selected group needs the hosts, and can have what builds their guests.
needs_hosts() {
    if wanted fastly || { wanted spin && ! has spin; }; then
        [ "${consent-}" = yes ] || wasm_found wasm32-wasip1 >/dev/null
    else
        return 1
    fi
}

# end_hosts WHAT: waits until the hosts are built. WHAT names what needs them.
end_hosts() {
    if [ -z "$hosts_built" ]; then
        wait "$building_hosts" && hosts_built="target/hosts/release, $(($(date +%s) - began)) s after the setup began"
        cat target/hosts.log >&2
        : "${hosts_built:=missing}"
    fi
    if [ "$hosts_built" != missing ]; then
        say "the hosts for Spin and Compute apps: $hosts_built"
    else
        say "the hosts are missing, but $1 need them; see the error above, and retry with: $hosts"
    fi
}

# without_hosts KIND: says that no app of this kind can be built, and stops building the hosts.
without_hosts() {
    [ -z "$building_hosts" ] || kill "$building_hosts" 2>/dev/null
    say "without it no $1 app can be built; skipping the hosts"
}
