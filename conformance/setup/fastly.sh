# shellcheck shell=sh
# The targets on Fastly: Rust for Compute apps, and a host of the suite's own on Viceroy.

if ! wasm_rust wasm32-wasip1 "the targets on Fastly"; then
    say "no Compute app can be built without it: the hosts are left out"
else
    build_hosts "the targets on Fastly"
fi
