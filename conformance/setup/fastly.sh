# What runs a Compute app: Viceroy, as a part of our own host. Built ahead, for it takes minutes.

wasi_has_target() { (wasm_target=wasm32-wasip1 && rustc_has_target rustc); }

if ! wasi_has_target && command -v rustup >/dev/null 2>&1; then
    RUSTUP_MAX_RETRIES=1 rustup target add wasm32-wasip1 >/dev/null 2>&1
fi
viceroy=$(sed -n '/^name = "viceroy-lib"$/{n;s/^version = "\(.*\)"$/\1/p;}' conformance/hosts/Cargo.lock)
host_build="cargo build --quiet --release --manifest-path conformance/hosts/Cargo.toml --target-dir target/hosts"
host_build="$host_build --package tollgate-host-fastly"
if ! wasi_has_target; then
    say "wasm32-wasip1 is missing, and with it the targets on Fastly; install it with: rustup target add wasm32-wasip1"
else
    [ -x target/hosts/release/tollgate-host-fastly ] || say "building Viceroy $viceroy, which takes minutes"
    if $host_build; then
        say "Viceroy $viceroy: target/hosts/release/tollgate-host-fastly"
    else
        say "Viceroy cannot be built, and without it the targets on Fastly do not start; build it with: $host_build"
    fi
fi
