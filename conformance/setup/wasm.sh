# Rust for WebAssembly: the target wasm32-unknown-unknown, from rustup where its servers answer, else from Debian's packages.
#
# A rustc that has the target needs nothing. Else the suite looks for the toolchain `tollgate-wasm`, and then for
# /usr/bin/cargo: the order in which conformance/src/target/wasm.rs tries them, too.

wasm_target=wasm32-unknown-unknown

# rustc_has_target RUSTC...: whether this rustc can build for the target.
rustc_has_target() {
    folder=$("$@" --print target-libdir --target "$wasm_target" 2>/dev/null) && ls "$folder"/libcore-*.rlib >/dev/null 2>&1
}

# Debian's rustc has no library for the target, but its source: built once, and kept in target/.
debian_wasm() {
    rustc=/usr/bin/rustc
    if ! [ -x "$rustc" ] || ! ls /usr/bin/lld-19 /usr/src/rustc-*/library/core/Cargo.toml >/dev/null 2>&1; then
        say "installing rustc-web, cargo-web, rust-web-src and lld-19"
        apt_install --no-remove rustc-web cargo-web rust-web-src lld-19 || return 1
    fi
    host=$("$rustc" -vV | sed -n 's/^host: //p')
    libraries=$("$rustc" --print target-libdir --target "$wasm_target") || return 1
    linker=$("$rustc" --print sysroot)/lib/rustlib/$host/bin/rust-lld
    if ! [ -e "$linker" ]; then
        as_root mkdir -p "$(dirname "$linker")" && as_root ln -sf /usr/bin/lld-19 "$linker" || return 1
    fi
    if ! rustc_has_target "$rustc"; then
        kept=target/wasm-std/$("$rustc" --version | tr -c 'a-zA-Z0-9.\n' '-')
        if ! ls "$kept"/libcore-*.rlib >/dev/null 2>&1; then
            say "building the standard library for $wasm_target"
            build_std "$kept" || return 1
        fi
        as_root mkdir -p "$libraries" && as_root cp "$kept"/*.rlib "$libraries" || return 1
    fi
    if command -v rustup >/dev/null 2>&1; then
        rustup toolchain link tollgate-wasm /usr || return 1
    fi
    rustc_has_target "$rustc"
}

# build_std FOLDER: the standard library's rlibs.
build_std() {
    empty=target/wasm-std/empty
    mkdir -p "$empty/src" "$1" && : >"$empty/src/lib.rs" || return 1
    printf '[package]\nname = "empty"\nedition = "2024"\n[workspace]\n' >"$empty/Cargo.toml"
    # With bitcode, for the guests are optimised across crates.
    (cd "$empty" && PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR=. \
        /usr/bin/cargo build --quiet --release -Zbuild-std=std,panic_abort --target "$wasm_target") || return 1
    cp "$empty/$wasm_target"/release/deps/lib*.rlib "$1" && rm -f "$1"/libempty-*
}

# Sets wasm to what was found, or to nothing.
wasm=
if rustc_has_target rustc; then
    wasm="rustc has it"
elif command -v rustup >/dev/null 2>&1 && RUSTUP_MAX_RETRIES=1 rustup target add "$wasm_target" >/dev/null 2>&1 && rustc_has_target rustc; then
    wasm="installed by rustup"
elif command -v rustup >/dev/null 2>&1 && rustc_has_target rustup run tollgate-wasm rustc; then
    wasm="the toolchain tollgate-wasm has it"
elif debian_wasm; then
    wasm="Debian's rustc has it"
fi
if [ -n "$wasm" ]; then
    say "$wasm_target: $wasm"
else
    say "$wasm_target is missing, and with it the targets on WebAssembly; install it with: rustup target add $wasm_target"
fi
