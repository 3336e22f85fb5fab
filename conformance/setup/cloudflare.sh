# shellcheck shell=sh
# The targets on Cloudflare: Rust for Workers, worker-build, wasm-bindgen, esbuild and workerd.

if ! wasm_rust wasm32-unknown-unknown "the targets on Cloudflare"; then
    say "without it no Worker can be built; skipping the tools for Workers"
else
    npm_packages conformance/hosts/cloudflare workerd "the targets on Cloudflare"
    wasm_bindgen "the targets on Cloudflare"
    cargo_tool worker-build 0.8.7 worker-build "the targets on Cloudflare"
fi
