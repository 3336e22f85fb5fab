# shellcheck shell=sh
# The npm package: TypeScript, binaryen, edge-runtime and deno.

if ! wasm_rust wasm32-unknown-unknown "the npm package and its targets"; then
    say "without it the npm package cannot be built; skipping its tools"
else
    npm_packages adapters/npm "typescript and the tools of its tests" "the npm package and its targets"
    # The hosts use the package from this checkout. npm links it.
    npm_packages conformance/hosts/edge "edge-runtime, deno, ioredis and pg" "the targets that run the npm package"
    wasm_bindgen "the npm package and its targets"
fi
