# shellcheck shell=sh
# The targets on Spin: Rust for Spin apps, and the suite's host if `spin` is not installed.

if ! wasm_rust wasm32-wasip1 "the targets on Spin"; then
    without_hosts Spin
elif has spin; then
    say "spin: $(command -v spin)"
else
    end_hosts "the targets on Spin"
fi
