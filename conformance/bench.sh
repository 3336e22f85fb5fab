#!/bin/sh
# Runs the benchmarks, and reports what they measured as a table, target/bench/bench.html and target/bench/bench.json.
#
#     conformance/bench.sh [--quick] [NAME]...
#
# NAME is one of core, gate, growth, memory, layers, objects, redis, postgres, envoy, npm, cloudflare, spin and fastly. The default is all of them. The
# script continues after a benchmark that fails, and fails in the end. --quick shortens all durations to a tenth. This
# tests the benchmarks; their values mean nothing.
set -u
cd "$(dirname "$0")/.." || exit 2

all="core gate growth memory layers objects redis postgres envoy npm cloudflare spin fastly"
names=
quick=
for argument; do
    case " --quick $all " in
    *" $argument "*) ;;
    *)
        echo "bench: $argument is not a benchmark; the benchmarks are $all" >&2
        exit 2
        ;;
    esac
    if [ "$argument" = --quick ]; then quick=--quick; else names="$names $argument"; fi
done
: "${names:=$all}"

run() {
    case $1 in
    core) cargo bench --quiet --package tidegate-core --bench core ;;
    gate) cargo bench --quiet --package tidegate-core --features toml --bench gate ;;
    growth) cargo bench --quiet --package tidegate-core --features toml --bench growth ;;
    memory) cargo bench --quiet --package tidegate-core --bench memory ;;
    layers) cargo bench --quiet --package tidegate-tower --bench layers --bench axum ;;
    objects) cargo bench --quiet --package tidegate-cloudflare --features durable-objects --bench keys ;;
    redis) cargo bench --quiet --package tidegate-redis --bench redis ;;
    postgres) cargo bench --quiet --package tidegate-postgres --bench postgres -- throughput ;;
    envoy) cargo bench --quiet --package tidegate-envoy --bench grpc ;;
    npm) (cd adapters/npm && ./build.sh && npm run --silent bench) ;;
    cloudflare) conformance/hosts/cloudflare/bench.sh ;;
    spin) conformance/hosts/spin/bench.sh ;;
    fastly) cargo bench --quiet --package tidegate-dev --bench fastly ;;
    esac
}

mkdir -p target/bench
TIDEGATE_BENCH=$PWD/target/bench/bench.jsonl
export TIDEGATE_BENCH
: >"$TIDEGATE_BENCH"
unset TIDEGATE_BENCH_QUICK
[ -z "$quick" ] || export TIDEGATE_BENCH_QUICK=yes

set -- --out target/bench ${quick:+--quick}
for name in $names; do
    echo "bench: $name" >&2
    run "$name" || {
        echo "bench: $name failed" >&2
        set -- "$@" --failed "$name"
    }
done
exec cargo run --quiet --release --bin tidegate-dev -- bench-report "$TIDEGATE_BENCH" "$@"
