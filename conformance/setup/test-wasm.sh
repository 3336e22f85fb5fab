#!/bin/sh
# Runs the tests of signed tokens as WebAssembly, because their cryptography is other code there.
set -eu
cd "$(dirname "$0")/../.."

# shellcheck source=conformance/setup/rust.sh
. conformance/setup/rust.sh
use_rust_for wasm32-wasip1

if ! rustc_has_target wasm32-wasip1 rustc || ! command -v node >/dev/null; then
    echo "Rust for wasm32-wasip1 or Node.js is missing, so no test runs as WebAssembly; run conformance/setup.sh"
    exit
fi
export CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $PWD/conformance/setup/wasi.mjs"
exec cargo test --package tidegate-jwt --tests --target wasm32-wasip1
