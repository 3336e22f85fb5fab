# shellcheck shell=sh
# The targets on Fastly: Rust for Compute apps, and the suite's host, which embeds Viceroy.

if ! wasm_rust wasm32-wasip1 "the targets on Fastly"; then
    say "without it no Compute app can be built; skipping the hosts"
else
    build_hosts "the targets on Fastly"
fi
