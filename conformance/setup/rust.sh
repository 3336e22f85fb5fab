# shellcheck shell=sh
# The Rust toolchains that may build for WebAssembly, in the order of conformance/harness/src/target/wasm.rs: the default one,
# the one that wasm.sh links if rustup cannot add the target, and Debian's.

# rustc_has_target TARGET RUSTC...: whether this rustc can build for the target.
rustc_has_target() {
    wanted=$1 && shift
    folder=$("$@" --print target-libdir --target "$wanted" 2>/dev/null) && ls "$folder"/libcore-*.rlib >/dev/null 2>&1
}

# use_rust_for TARGET: selects the first toolchain that can build for the target.
use_rust_for() {
    if rustc_has_target "$1" rustc; then
        :
    elif rustc_has_target "$1" env RUSTUP_TOOLCHAIN=tidegate-wasm rustc; then
        export RUSTUP_TOOLCHAIN=tidegate-wasm
    else
        PATH=/usr/bin:$PATH
    fi
}
