# What builds a Spin app and runs it: Rust for wasm32-wasip1, and where there is no `spin` the host of ours, on wasmtime.

wasm_rust wasm32-wasip1 "the targets on Spin"
if [ -z "$wasm" ]; then
    say "without wasm32-wasip1 no Spin app can be built: its host is left out"
elif command -v spin >/dev/null 2>&1; then
    say "spin: $(command -v spin)"
else
    say "building tollgate-host-spin, which takes some minutes once"
    build="cargo build --quiet --release --locked --manifest-path conformance/hosts/Cargo.toml --target-dir target/hosts"
    began=$(date +%s)
    if $build --package tollgate-host-spin; then
        say "tollgate-host-spin: target/hosts/release/tollgate-host-spin, in $(($(date +%s) - began)) s"
    else
        say "tollgate-host-spin is missing, and with it the targets on Spin; build it with: $build"
    fi
fi
