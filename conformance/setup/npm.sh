# What builds the npm package and runs it: TypeScript, binaryen, the frameworks of its examples, edge-runtime and deno.

if [ -z "$wasm" ]; then
    say "without $wasm_target the npm package cannot be built: what it needs is left out"
elif ! command -v npm >/dev/null 2>&1; then
    say "npm is missing, and with it the npm package; install it with: sudo apt-get install npm"
else
    npm_packages adapters/npm "typescript and the frameworks" "the npm package"
    # The package that the hosts run is a folder of this checkout: linked, not copied.
    npm_packages conformance/hosts/edge "edge-runtime and deno" "the targets vercel, netlify and netlify-blobs"
fi
