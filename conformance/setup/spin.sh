# shellcheck shell=sh
# The targets on Spin: Rust for Spin apps, and a host of the suite's own where `spin` is not installed.

if ! wasm_rust wasm32-wasip1 "the targets on Spin"; then
    say "no Spin app can be built without it: the hosts are left out"
elif has spin; then
    say "spin: $(command -v spin)"
else
    build_hosts "the targets on Spin"
fi
