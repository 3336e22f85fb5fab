#!/bin/sh
# Measures the size of the Spin app beside the smallest possible one, then runs the benchmark on our host.
set -eu
cd "$(dirname "$0")/../../.." || exit

target=wasm32-wasip1
# shellcheck source=conformance/setup/rust.sh
. conformance/setup/rust.sh

built=target/deployed
# Build in the guests' own folders, as `spin build` does, to use their profiles.
for guest in spin spin-least; do
    (use_rust_for $target && cd "conformance/guests/$guest" && cargo build --quiet --release --target $target --target-dir "../../../$built")
done
cargo build --quiet --release --manifest-path conformance/hosts/Cargo.toml --target-dir target/hosts --workspace

guest() { echo "$built/$target/release/tidegate_guest_$1.wasm"; }
exec cargo bench --quiet --package tidegate-dev --bench spin -- target/hosts/release/tidegate-host-spin "$(guest spin)" "$(guest spin_least)"
