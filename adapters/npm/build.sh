#!/bin/sh
# Builds the package into dist/ and prints the size of each entry, unless nothing has changed. The TypeScript is compiled into modules/, which tests load one by one, and
# bundled from there. With --for-tests, also builds the core's gate and limiters as WebAssembly into reference/, with which the tests
# compare the TypeScript. conformance/setup.sh installs the tools.
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

# The package must not contain paths of this machine. SHA-256 hashes only policies and secrets, so the small version suffices.
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="--remap-path-prefix=$HOME=. --remap-path-prefix=$(cd "$root" && pwd)=. --cfg sha2_backend_soft=\"compact\""

# optimize INPUT OUTPUT: makes a module small, and prints its new names.
optimize() {
    node traps.mjs "$1" "$1.trapping"
    # The first KiB of memory is the end of the stack, and no pointer to it is the sum of one below it and a number.
    node node_modules/binaryen/bin/wasm-opt -Oz --converge --low-memory-unused --enable-bulk-memory --enable-bulk-memory-opt --enable-multivalue \
        --enable-mutable-globals --enable-nontrapping-float-to-int --enable-reference-types --enable-sign-ext --strip-debug --strip-producers --strip-target-features \
        --minify-imports-and-exports-and-modules "$1.trapping" -o "$2"
}

# finish MODULE: makes a module that was bound small, and puts it and its glue into the package.
finish() {
    small=$built/small/$1
    # wasm-opt takes most of the time. Its result is kept until its input, its version or its options change.
    if ! cmp -s "$small/bound/tidegate_bg.wasm" "$small/input.wasm" || [ build.sh -nt "$small/input.wasm" ] || [ traps.mjs -nt "$small/input.wasm" ] || [ package-lock.json -nt "$small/input.wasm" ]; then
        optimize "$small/bound/tidegate_bg.wasm" "$small/tidegate.wasm" >"$small/names"
        cp "$small/bound/tidegate_bg.wasm" "$small/input.wasm"
    fi
    cp "$small/tidegate.wasm" "$new/$1/tidegate.wasm"
    node rename.mjs "$small/names" "$small/bound/tidegate_bg.js" "$modules/gate/glue.js"
}

# Built beside it and swapped at the end, because a guest of another run may be loading it.
new=dist.new
modules=modules.new
rm -rf "$new" "$modules"
mkdir -p "$modules/gate" "$modules/stores/redis"
built=${CARGO_TARGET_DIR:-$root/target}/wasm32-unknown-unknown/npm
# compile MODULE: compiles a module and binds it to JavaScript.
compile() {
    cargo build --quiet --package tidegate-npm --no-default-features --features "$1" --profile npm --target wasm32-unknown-unknown
    mkdir -p "$built/small/$1"
    "$wasm_bindgen" --target bundler --no-typescript --out-dir "$built/small/$1/bound" --out-name tidegate "$built/tidegate_npm.wasm"
}

compile toml
mkdir -p "$new/toml"
# It is made small while others are compiled: each keeps one core busy.
finish toml &
finishing=$!
if [ "${1-}" = --for-tests ]; then
    rm -rf reference.new
    for module in rules-toml memory redis versioned object kv; do
        compile "$module"
        mkdir -p "reference.new/$module"
        cp "$built/small/$module/bound/tidegate_bg.wasm" "reference.new/$module/tidegate.wasm"
        node rename.mjs "" "$built/small/$module/bound/tidegate_bg.js" "reference.new/$module/glue.js"
    done
    rm -rf reference
    mv reference.new reference
fi
wait "$finishing"

# checksum FILE...: prints the checksum of all files in these places.
checksum() {
    find "$@" -type f ! -name .built | LC_ALL=C sort | xargs cksum | cksum
}

# sources: prints the checksum of what the rest is made of.
sources() {
    checksum ./*.mjs ./*.json build.sh ts ../redis/src ../../fixtures ../../core/rules.schema.json ../../CHANGELOG.md "$built/small/toml"
}

# built: prints the checksums of that, and of what it made.
built() {
    sources
    checksum dist modules
}

# The compiler of TypeScript takes many seconds to find that nothing has changed.
begun=$(sources)
if [ "$(built 2>&1)" = "$(cat modules/.built 2>&1)" ]; then
    rm -rf "$new" "$modules"
    exit
fi
node scripts.mjs "$modules/stores/redis"
# node_modules/.bin/tsc can be another version: the tests have several.
node node_modules/typescript/bin/tsc --outDir "$modules" --declarationDir "$new"
node node_modules/typescript/bin/tsc --project ts/program --outDir "$modules"
node bundle.mjs "$modules" "$new"
rm -rf modules dist.old
mv "$modules" modules
if [ -e dist ]; then mv dist dist.old; fi
mv "$new" dist
rm -rf dist.old
node pack.mjs
node commonjs.mjs
# What changed meanwhile is not built.
if [ "$(sources)" = "$begun" ]; then built >modules/.built; fi
