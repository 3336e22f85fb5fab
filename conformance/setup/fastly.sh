# shellcheck shell=sh
# The targets on Fastly: Rust for Compute apps, and the suite's host, which embeds Viceroy.

if ! wasm_rust wasm32-wasip1 "the targets on Fastly"; then
    without_hosts Compute
else
    end_hosts "the targets on Fastly"
fi
