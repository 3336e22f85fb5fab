#!/bin/sh
# Builds the Worker, and the least there can be, as `wrangler deploy` would; then measures. Takes what bench.mjs takes.
set -eu
cd "$(dirname "$0")/../../.." || exit

host=$PWD/conformance/hosts/cloudflare
deployed=$PWD/target/deployed

for tool in "$host/node_modules/.bin/workerd" target/tools/bin/worker-build; do
    [ -e "$tool" ] || { echo "$tool is missing; run conformance/setup.sh, which installs it or says why it cannot" >&2 && exit 1; }
done

# The Rusts that conformance/src/target/wasm.rs tries.
has_target() { ls "$("$@" --print target-libdir --target wasm32-unknown-unknown 2>/dev/null)"/libcore-*.rlib >/dev/null 2>&1; }
if has_target rustc; then
    :
elif has_target env RUSTUP_TOOLCHAIN=tollgate-wasm rustc; then
    export RUSTUP_TOOLCHAIN=tollgate-wasm
else
    PATH=/usr/bin:$PATH
fi

export CARGO_TARGET_DIR="$deployed" WASM_BINDGEN_BIN="$PWD/target/tools/bin/wasm-bindgen" ESBUILD_BIN="$host/node_modules/.bin/esbuild"
# wasm-opt is binaryen's. Without it both Workers are measured as the linker leaves them.
opt=--no-opt
if wasm_opt=$(command -v "${WASM_OPT_BIN:-wasm-opt}"); then
    opt=
    export WASM_OPT_BIN="$wasm_opt"
fi
for guest in cloudflare cloudflare-least; do
    # shellcheck disable=SC2086
    (cd "conformance/guests/$guest" && "$host/../../../target/tools/bin/worker-build" --release $opt --out-dir "../../../target/deployed/guests/$guest" >"$deployed-$guest.log" 2>&1) ||
        { cat "$deployed-$guest.log" >&2 && exit 1; }
done
echo "built ${opt:-with $("$wasm_opt" --version)}"
exec node "$host/bench.mjs" --built "$deployed/guests/cloudflare" --least "$deployed/guests/cloudflare-least" "$@"
