#!/bin/sh
# Lints the crates that run as WebAssembly, as they are built there.
set -u
cd "$(dirname "$0")/../.." || exit

# shellcheck source=conformance/setup/rust.sh
. conformance/setup/rust.sh

# lint TARGET ARGUMENT...: the packages that these name, with everything they use of this workspace.
lint() {
    target=$1 && shift
    if rustc_has_target "$target" rustc; then
        cargo clippy "$@" --target "$target" -- --deny warnings
    elif RUSTUP_TOOLCHAIN=tollgate-wasm rustc --version >/dev/null 2>&1; then
        # Debian's Rust for WebAssembly brings no clippy: its compiler's own lints are had all the same.
        RUSTUP_TOOLCHAIN=tollgate-wasm RUSTFLAGS='--deny warnings' cargo check "$@" --target "$target" --target-dir target/lint-wasm
    else
        echo "no Rust here builds for $target: nothing linted; run conformance/setup.sh"
    fi
}

lint wasm32-unknown-unknown --package 'tollgate-guest-cloudflare*' --package 'tollgate-cloudflare-*' --features tollgate-guest-cloudflare/suite &&
    lint wasm32-unknown-unknown --package tollgate-upstash --no-default-features --features rest &&
    lint wasm32-unknown-unknown --package tollgate-npm &&
    lint wasm32-unknown-unknown --package tollgate-npm --no-default-features --features blobs &&
    lint wasm32-wasip1 --package 'tollgate-guest-spin*' --package tollgate-spin &&
    lint wasm32-wasip1 --package tollgate-guest-fastly --package tollgate-fastly --features tollgate-guest-fastly/suite
