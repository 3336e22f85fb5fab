# What builds a Compute app and runs it: Rust for wasm32-wasip1, and Viceroy, as a part of our own host.

wasm_rust wasm32-wasip1 "the targets on Fastly"
if [ -z "$wasm" ]; then
    say "without wasm32-wasip1 no Compute app can be built: its host is left out"
else
    say "building tollgate-host-fastly, which takes some minutes once"
    build="cargo build --quiet --release --locked --manifest-path conformance/hosts/Cargo.toml --target-dir target/hosts"
    began=$(date +%s)
    if $build --package tollgate-host-fastly; then
        say "tollgate-host-fastly: target/hosts/release/tollgate-host-fastly, in $(($(date +%s) - began)) s"
    else
        say "tollgate-host-fastly is missing, and with it the targets on Fastly; build it with: $build"
    fi
fi
