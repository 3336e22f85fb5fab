# shellcheck shell=sh
# The npm package: TypeScript, binaryen, the frameworks of its examples, edge-runtime and deno.

if ! wasm_rust wasm32-unknown-unknown "the npm package and its targets"; then
    say "the npm package cannot be built without it: its tools are left out"
else
    npm_packages adapters/npm "typescript and the frameworks" "the npm package and its targets"
    # The package that the hosts run is a folder of this checkout, which npm links.
    npm_packages conformance/hosts/edge "edge-runtime and deno" "the targets vercel, netlify and netlify-blobs"
    wasm_bindgen "the npm package and its targets"
fi
