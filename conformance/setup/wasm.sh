# shellcheck shell=sh
# Rust for WebAssembly: from rustup if its servers can be reached, otherwise from Debian's packages.

# shellcheck source=conformance/setup/rust.sh
. conformance/setup/rust.sh

# wasm_found TARGET: prints the first toolchain that can build for the target, in the order of
# conformance/harness/src/target/wasm.rs. Fails if there is none.
wasm_found() {
    if rustc_has_target "$1" rustc; then
        echo "rustc has it"
    elif has rustup; then
        rustc_has_target "$1" rustup run tidegate-wasm rustc && echo "the toolchain tidegate-wasm has it"
    else
        rustc_has_target "$1" /usr/bin/rustc && echo "Debian's rustc has it"
    fi
}

# wasm_rust TARGET WHAT: installs Rust for the target unless a toolchain can build for it. WHAT names what needs it.
wasm_rust() {
    if found=$(wasm_found "$1"); then
        say "$1: $found"
        return
    fi
    if [ "${consent-}" = yes ]; then
        if has rustup && RUSTUP_MAX_RETRIES=1 rustup target add "$1" >/dev/null 2>&1 && rustc_has_target "$1" rustc; then
            say "$1: installed by rustup"
            return
        fi
        if debian_wasm "$1"; then
            say "$1: Debian's rustc has it"
            return
        fi
    fi
    say "$1 is missing, but $2 need it; install it with: rustup target add $1"
    return 1
}

# debian_packages TARGET: prints the packages with Debian's rustc, the source of its standard library, and a linker.
debian_packages() {
    printf 'rustc-web cargo-web rust-web-src lld-19'
    [ "$1" != wasm32-wasip1 ] || printf ' wasi-libc'
    echo
}

# debian_wasm TARGET: makes Debian's rustc able to build for the target. Its packages contain only the source of the
# standard library. So the library is built once, kept in target/, and copied to rustc, where any cargo finds it.
debian_wasm() {
    rustc=/usr/bin/rustc
    packages=$(debian_packages "$1")
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
        # The C library and startup code of WASI programs.
        if [ "$1" = wasm32-wasip1 ]; then
            as_root mkdir -p "$libraries/self-contained" &&
                (cd /usr/lib/wasm32-wasi && as_root cp libc.a crt1-command.o crt1-reactor.o "$libraries/self-contained") || return 1
        fi
    fi
    if has rustup; then
        rustup toolchain link tidegate-wasm /usr || return 1
    fi
    rustc_has_target "$1" "$rustc"
}

# build_std TARGET FOLDER: builds the rlibs of the standard library.
build_std() {
    empty=target/wasm-std/empty
    mkdir -p "$empty/src" "$2" && : >"$empty/src/lib.rs" || return 1
    printf '[package]\nname = "empty"\nedition = "2024"\n[workspace]\n' >"$empty/Cargo.toml"
    # Embed bitcode, because the guests use link-time optimisation.
    (cd "$empty" && PATH=/usr/bin:$PATH RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR=. \
        /usr/bin/cargo build --quiet --release -Zbuild-std=std,panic_abort --target "$1") || return 1
    cp "$empty/$1"/release/deps/lib*.rlib "$2" && rm -f "$2"/libempty-*
}
