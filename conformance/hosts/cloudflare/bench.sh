#!/bin/sh
# Builds four Workers as `wrangler deploy` would, and measures them: the guest, one with a single limit, the smallest one,
# and the guest with the npm package. Passes its arguments to bench.mjs.
set -eu
cd "$(dirname "$0")/../../.." || exit

host=$PWD/conformance/hosts/cloudflare
deployed=$PWD/target/deployed

for tool in "$host/node_modules/.bin/workerd" target/tools/bin/worker-build; do
    [ -e "$tool" ] || { echo "$tool is missing; run conformance/setup.sh to install it" >&2 && exit 1; }
done

# shellcheck source=conformance/setup/rust.sh
. conformance/setup/rust.sh
use_rust_for wasm32-unknown-unknown

export CARGO_TARGET_DIR="$deployed" WASM_BINDGEN_BIN="$PWD/target/tools/bin/wasm-bindgen" ESBUILD_BIN="$host/node_modules/.bin/esbuild"
# wasm-opt comes from npm's binaryen, in the version that worker-build would download. Without it, the Workers are
# measured without this optimisation.
wasm_opt=$(command -v "${WASM_OPT_BIN:-$PWD/adapters/npm/node_modules/.bin/wasm-opt}") && opt= || opt=--no-opt
export WASM_OPT_BIN="$wasm_opt"
for guest in cloudflare cloudflare-one cloudflare-least; do
    # shellcheck disable=SC2086
    (cd "conformance/guests/$guest" && "$host/../../../target/tools/bin/worker-build" --release $opt --out-dir "../../../target/deployed/guests/$guest" >"$deployed-$guest.log" 2>&1) ||
        { cat "$deployed-$guest.log" >&2 && exit 1; }
done
adapters/npm/build.sh >"$deployed-npm.log" 2>&1 || { cat "$deployed-npm.log" >&2 && exit 1; }
node conformance/hosts/edge/cloudflare.mjs "$PWD/conformance/guests/cloudflare-js/worker.mjs" "$deployed/guests/cloudflare-js"
echo "built ${opt:-with $("$wasm_opt" --version)}"
cd "$deployed/guests"
exec node "$host/bench.mjs" --built cloudflare --one cloudflare-one --least cloudflare-least --js cloudflare-js "$@"
