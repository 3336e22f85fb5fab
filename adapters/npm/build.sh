#!/bin/sh
# Builds the package into dist/: WebAssembly for size, its glue, the TypeScript; and prints what it weighs.
# conformance/setup.sh installs what it needs.
set -eu
cd "$(dirname "$0")"
root=$PWD/../..
wasm_bindgen=$root/target/tools/bin/wasm-bindgen

for tool in "$wasm_bindgen" node_modules/.bin/tsc; do
    [ -e "$tool" ] || { echo "$tool is missing; run conformance/setup.sh, which installs it or says why it cannot" >&2 && exit 1; }
done

# shellcheck source=conformance/setup/rust.sh
. "$root/conformance/setup/rust.sh"
use_rust_for wasm32-unknown-unknown

# Paths of this machine have no place in a package. SHA-256 is for a policy's name and for secrets: a slow one is fast enough.
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="--remap-path-prefix=$HOME=. --remap-path-prefix=$(cd "$root" && pwd)=. --cfg sha2_backend_soft=\"compact\""

rm -rf dist
for store in upstash blobs; do
    cargo build --quiet --package tidegate-npm --no-default-features --features "$store" --profile npm --target wasm32-unknown-unknown
    built=$root/target/wasm32-unknown-unknown/npm
    "$wasm_bindgen" --target bundler --no-typescript --out-dir "$built/bound" --out-name tidegate "$built/tidegate_npm.wasm"
    mkdir -p "dist/$store"
    node node_modules/binaryen/bin/wasm-opt -Oz --enable-bulk-memory --enable-bulk-memory-opt --enable-multivalue \
        --enable-mutable-globals --enable-nontrapping-float-to-int --enable-reference-types --enable-sign-ext --strip-debug --strip-producers --strip-target-features \
        --minify-imports-and-exports-and-modules "$built/bound/tidegate_bg.wasm" -o "dist/$store/tidegate.wasm" >"$built/names"
    node rename.mjs "$built/names" "$built/bound/tidegate_bg.js" "dist/$store/glue.js"
done
node_modules/.bin/tsc
exec node pack.mjs
