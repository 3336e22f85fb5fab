# What builds a Spin app and a Compute app, and runs them: Rust for wasm32-wasip1, and our own hosts, on wasmtime and on
# Viceroy. They are built together, for each alone would compile wasmtime with other features.

wasm_rust wasm32-wasip1 "the targets on Spin and Fastly"
if [ -z "$wasm" ]; then
    say "without wasm32-wasip1 no Spin app and no Compute app can be built: their hosts are left out"
else
    say "building the hosts of Spin and Compute apps, which takes some ten minutes once"
    build="cargo build --quiet --release --locked --workspace --manifest-path conformance/hosts/Cargo.toml --target-dir target/hosts"
    began=$(date +%s)
    if $build; then
        say "the hosts of Spin and Compute apps: target/hosts/release, in $(($(date +%s) - began)) s"
    else
        say "the hosts of Spin and Compute apps are missing, and with them the targets on Spin and Fastly; build them with: $build"
    fi
fi
