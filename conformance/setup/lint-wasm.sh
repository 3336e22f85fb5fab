#!/bin/sh
# Lints the crates that run as WebAssembly, for their own targets.
set -u
cd "$(dirname "$0")/../.." || exit

# shellcheck source=conformance/setup/rust.sh
. conformance/setup/rust.sh

# lint TARGET ARGUMENT...: lints the packages that the arguments select, and their dependencies in this workspace.
lint() {
    target=$1 && shift
    if rustc_has_target "$target" rustc; then
        cargo clippy "$@" --target "$target" -- --deny warnings
    elif RUSTUP_TOOLCHAIN=tidegate-wasm rustc --version >/dev/null 2>&1; then
        # Debian's Rust for WebAssembly has no clippy. Check with the compiler's own lints.
        RUSTUP_TOOLCHAIN=tidegate-wasm RUSTFLAGS='--deny warnings' cargo check "$@" --target "$target" --target-dir target/lint-wasm
    else
        echo "no Rust toolchain here can build for $target, so nothing is linted; run conformance/setup.sh"
    fi
}

# The npm package's crate has one feature for each module that is built.
npm_modules() {
    for module in toml rules-toml versioned kv redis memory object; do
        lint wasm32-unknown-unknown --package tidegate-npm --no-default-features --features "$module" || return
    done
}

lint wasm32-unknown-unknown --package 'tidegate-guest-cloudflare*' --package tidegate-cloudflare --package tidegate-example-cloudflare --features tidegate-guest-cloudflare/suite &&
    lint wasm32-unknown-unknown --package tidegate-jwt --package tidegate-snippets &&
    lint wasm32-unknown-unknown --package tidegate-redis --no-default-features --features rest &&
    npm_modules &&
    lint wasm32-wasip1 --package 'tidegate-guest-spin*' --package tidegate-spin --package tidegate-spin-gate --package 'tidegate-example-spin*' --package tidegate-snippets --features tidegate-spin-gate/suite,tidegate-spin-gate/tokens &&
    lint wasm32-wasip1 --package tidegate-guest-fastly --package tidegate-fastly --package tidegate-example-fastly --features tidegate-guest-fastly/suite
