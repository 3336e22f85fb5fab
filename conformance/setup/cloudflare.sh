# What builds a Worker and runs it: worker-build, wasm-bindgen, esbuild and workerd. All of it stays inside the checkout.

worker_build=0.8.7
tools=target/tools

# cargo_tool CRATE VERSION PROGRAM: installs a program, unless it is there in that version.
cargo_tool() {
    if grep -qs "^\"$1 $2 " "$tools/.crates.toml"; then
        say "$1 $2: $tools/bin/$3"
    else
        say "installing $1 $2, which takes a minute or two"
        # Unoptimised, for it runs for a second and takes minutes to optimise. With the versions that its authors locked,
        # where the registry at hand has them.
        install="cargo install --quiet --debug --root $tools --version $2 $1"
        export CARGO_TARGET_DIR=target/tools-build
        $install --locked 2>/dev/null || $install ||
            say "$1 is missing, and with it the targets on Cloudflare; install it with: $install"
        unset CARGO_TARGET_DIR
    fi
}

wasm_rust wasm32-unknown-unknown "the targets on Cloudflare"
host=conformance/hosts/cloudflare
if [ -z "$wasm" ]; then
    say "without wasm32-unknown-unknown no Worker can be built: its tools are left out"
elif ! command -v npm >/dev/null 2>&1; then
    say "npm is missing, and with it the targets on Cloudflare; install it with: sudo apt-get install npm"
else
    wasm_bindgen=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock)
    cargo_tool worker-build "$worker_build" worker-build
    cargo_tool wasm-bindgen-cli "$wasm_bindgen" wasm-bindgen
    npm_packages "$host" workerd "the targets on Cloudflare"
fi
