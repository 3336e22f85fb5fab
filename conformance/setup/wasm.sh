# Rust for WebAssembly: what Workers and Spin apps are built for, from rustup where its servers answer, else from Debian's packages.
#
# A rustc that has a target needs nothing. Else the suite looks for the toolchain `tidegate-wasm`, and then for
# /usr/bin/cargo: the order in which conformance/src/target/wasm.rs tries them, too.

# shellcheck source=conformance/setup/rust.sh
. conformance/setup/rust.sh

# debian_wasm TARGET: Debian's rustc has no library for the target, but its source: built once, and kept in target/.
debian_wasm() {
    rustc=/usr/bin/rustc
    packages="rustc-web cargo-web rust-web-src lld-19"
    [ "$1" != wasm32-wasip1 ] || packages="$packages wasi-libc"
    # shellcheck disable=SC2086
    if ! dpkg-query --show $packages >/dev/null 2>&1; then
        say "installing $packages"
        apt_install --no-remove $packages || return 1
    fi
    host=$("$rustc" -vV | sed -n 's/^host: //p')
    libraries=$("$rustc" --print target-libdir --target "$1") || return 1
    linker=$("$rustc" --print sysroot)/lib/rustlib/$host/bin/rust-lld
    if ! [ -e "$linker" ]; then
        as_root mkdir -p "$(dirname "$linker")" && as_root ln -sf /usr/bin/lld-19 "$linker" || return 1
    fi
    if ! rustc_has_target "$1" "$rustc"; then
        kept=target/wasm-std/$1/$("$rustc" --version | tr -c 'a-zA-Z0-9.\n' '-')
        if ! ls "$kept"/libcore-*.rlib >/dev/null 2>&1; then
            say "building the standard library for $1"
            build_std "$1" "$kept" || return 1
        fi
        as_root mkdir -p "$libraries" && as_root cp "$kept"/*.rlib "$libraries" || return 1
        # What a program for WASI starts with, and its C library.
        if [ "$1" = wasm32-wasip1 ]; then
            as_root mkdir -p "$libraries/self-contained" &&
                (cd /usr/lib/wasm32-wasi && as_root cp libc.a crt1-command.o crt1-reactor.o "$libraries/self-contained") || return 1
        fi
    fi
    if command -v rustup >/dev/null 2>&1; then
        rustup toolchain link tidegate-wasm /usr || return 1
    fi
    rustc_has_target "$1" "$rustc"
}

# build_std TARGET FOLDER: the standard library's rlibs.
build_std() {
    empty=target/wasm-std/empty
    mkdir -p "$empty/src" "$2" && : >"$empty/src/lib.rs" || return 1
    printf '[package]\nname = "empty"\nedition = "2024"\n[workspace]\n' >"$empty/Cargo.toml"
    # With bitcode, for the guests are optimised across crates.
    (cd "$empty" && PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR=. \
        /usr/bin/cargo build --quiet --release -Zbuild-std=std,panic_abort --target "$1") || return 1
    cp "$empty/$1"/release/deps/lib*.rlib "$2" && rm -f "$2"/libempty-*
}

# wasm_rust TARGET WHAT: sets wasm to where the target was found, or to nothing, and with it WHAT is missing.
wasm_rust() {
    wasm=
    if rustc_has_target "$1" rustc; then
        wasm="rustc has it"
    elif command -v rustup >/dev/null 2>&1 && RUSTUP_MAX_RETRIES=1 rustup target add "$1" >/dev/null 2>&1 && rustc_has_target "$1" rustc; then
        wasm="installed by rustup"
    elif command -v rustup >/dev/null 2>&1 && rustc_has_target "$1" rustup run tidegate-wasm rustc; then
        wasm="the toolchain tidegate-wasm has it"
    elif debian_wasm "$1"; then
        wasm="Debian's rustc has it"
    fi
    if [ -n "$wasm" ]; then
        say "$1: $wasm"
    else
        say "$1 is missing, and with it $2; install it with: rustup target add $1"
    fi
}
