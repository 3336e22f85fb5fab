#!/bin/sh
# Lints the crates that run as WebAssembly, as they are built there.
set -u
cd "$(dirname "$0")/../.." || exit

target=wasm32-unknown-unknown
folder=$(rustc --print target-libdir --target "$target" 2>/dev/null)
if ls "$folder"/libcore-*.rlib >/dev/null 2>&1; then
    cargo clippy --package tollgate-guest-cloudflare --package 'tollgate-cloudflare-*' --target "$target" -- --deny warnings &&
        cargo clippy --package tollgate-upstash --no-default-features --features rest --target "$target" -- --deny warnings &&
        cargo clippy --package tollgate-npm --target "$target" -- --deny warnings &&
        cargo clippy --package tollgate-npm --no-default-features --features blobs --target "$target" -- --deny warnings
    exit
fi
# Debian's Rust for WebAssembly brings no clippy: its compiler's own lints are had all the same.
if RUSTUP_TOOLCHAIN=tollgate-wasm rustc --version >/dev/null 2>&1; then
    export RUSTUP_TOOLCHAIN=tollgate-wasm RUSTFLAGS='--deny warnings'
    cargo check --package tollgate-guest-cloudflare --target "$target" --target-dir target/lint-wasm &&
        cargo check --package tollgate-upstash --no-default-features --features rest --target "$target" --target-dir target/lint-wasm &&
        cargo check --package tollgate-npm --target "$target" --target-dir target/lint-wasm &&
        cargo check --package tollgate-npm --no-default-features --features blobs --target "$target" --target-dir target/lint-wasm
    exit
fi
echo "no Rust here builds for $target: nothing linted; run conformance/setup.sh"
