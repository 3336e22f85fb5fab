#!/bin/sh
# Lints the crates that run as WebAssembly, as they are built there.
set -u
cd "$(dirname "$0")/../.." || exit

# lint TARGET GUEST ADAPTERS: by clippy, or by the compiler alone.
lint() {
    folder=$(rustc --print target-libdir --target "$1" 2>/dev/null)
    if ls "$folder"/libcore-*.rlib >/dev/null 2>&1; then
        cargo clippy --package "$2" --package "$3" --target "$1" -- --deny warnings || exit
    # Debian's Rust for WebAssembly brings no clippy: its compiler's own lints are had all the same.
    elif RUSTUP_TOOLCHAIN=tollgate-wasm rustc --version >/dev/null 2>&1; then
        RUSTUP_TOOLCHAIN=tollgate-wasm RUSTFLAGS='--deny warnings' \
            cargo check --package "$2" --target "$1" --target-dir target/lint-wasm || exit
    else
        echo "no Rust here builds for $1: nothing linted; run conformance/setup.sh"
    fi
}

lint wasm32-unknown-unknown tollgate-guest-cloudflare 'tollgate-cloudflare-*'
lint wasm32-wasip1 tollgate-guest-fastly tollgate-fastly
