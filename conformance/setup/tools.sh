# shellcheck shell=sh
# Programs from crates.io and packages from npm. All of them stay inside the checkout.

tools=target/tools

# cargo_tool CRATE VERSION PROGRAM WHAT: installs a program, unless it is there in that version.
cargo_tool() {
    if grep -qs "^\"$1 $2 " "$tools/.crates.toml"; then
        say "$1 $2: $tools/bin/$3"
        return
    fi
    say "installing $1 $2, which takes a minute or two"
    # Unoptimised, because it runs for a second and takes minutes to optimise. With the versions that its authors locked.
    install="cargo install --locked --debug --root $tools --version $2 $1"
    CARGO_TARGET_DIR=target/tools-build $install --quiet ||
        say "$1 is missing, which $4 need; cargo's reason is above, and the command is: $install"
}

# wasm_bindgen WHAT: the wasm-bindgen of the version that Cargo.lock has.
wasm_bindgen() {
    version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)
    cargo_tool wasm-bindgen-cli "$version" wasm-bindgen "$1"
}

# npm_packages FOLDER WHAT USE: installs what the folder's package-lock.json names, unless that is there.
npm_packages() {
    if ! has npm; then
        say "npm is missing, which $3 need; install it with: sudo apt-get install npm"
    elif cmp -s "$1/package-lock.json" "$1/node_modules/.tidegate-lock.json"; then
        say "$2: $1/node_modules"
    elif npm ci --silent --no-audit --no-fund --prefix "$1" && cp "$1/package-lock.json" "$1/node_modules/.tidegate-lock.json"; then
        say "$2: installed in $1/node_modules"
    else
        say "$2: missing, which $3 need; install it with: npm ci --prefix $1"
    fi
}

# build_hosts WHAT: builds the suite's own hosts, which run guests. They are built together, because each alone would
# compile their engine with other features.
build_hosts() {
    build="cargo build --release --locked --workspace --manifest-path conformance/hosts/Cargo.toml --target-dir target/hosts"
    say "building the hosts of Spin and Compute apps, which takes minutes once"
    began=$(date +%s)
    if $build --quiet; then
        say "the hosts of Spin and Compute apps: target/hosts/release, in $(($(date +%s) - began)) s"
    else
        say "the hosts are missing, which $1 need; cargo's reason is above, and the command is: $build"
    fi
}
