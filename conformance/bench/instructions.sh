#!/bin/sh
# Counts what one request takes: instructions, which other load does not change, by function, and allocations. Needs valgrind.
#
#     conformance/bench/instructions.sh [NAME]...
#
# NAME is one of the names below. The default is all of them. Each line of a list has the instructions of a function itself, with those that the
# compiler has put into it.
set -eu
cd "$(dirname "$0")/../.."

core="limiter gate gate-refused"
layers="app layer layer-refused tower_governor tower_governor-refused"
names=${*:-$core $layers}
requests=10000

if ! command -v valgrind >/dev/null; then
    echo "instructions: there is no valgrind; install it, such as by apt-get install valgrind" >&2
    exit 2
fi
folder=$PWD/target/bench
mkdir -p "$folder"

# The program of a benchmark.
built() {
    cargo bench --quiet --no-run --message-format json "$@" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

for name in $names; do
    case " $core | $layers " in
    *" $name "*"|"*) program=${gate:=$(built --package tidegate-core --features toml --bench gate)} ;;
    *"|"*" $name "*) program=${layer:=$(built --package tidegate-tower --bench layers)} ;;
    *)
        echo "instructions: there is no $name; the names are $core $layers" >&2
        exit 2
        ;;
    esac
    profile=$folder/instructions-$name
    valgrind --quiet --tool=callgrind --collect-atstart=no --toggle-collect='*calls_that_count*' \
        --callgrind-out-file="$profile" "$program" --count "$name" "$requests"
    callgrind_annotate --auto=no --threshold=100 "$profile" >"$profile.txt"
    awk -v name="$name" -v requests="$requests" '
        FNR == NR && $1 ~ /^c?fn=/ {
            split($1, part, /[()]/)
            if ($2 != "") named[part[2]] = $2
            called = named[part[2]]
        }
        FNR == NR && $1 ~ /^calls=/ && called ~ /^(malloc|calloc|realloc|posix_memalign|aligned_alloc)$/ { allocations += substr($1, 7) }
        FNR == NR { next }
        / PROGRAM TOTALS$/ { total = count() }
        listed && $1 ~ /^[0-9,]+$/ {
            of = count()
            sub(/^ *[0-9,]+ +\([^)]*\) +[^:]*:/, "")
            sub(/ \[[^]]*\]$/, "")
            counts[$0] += of
        }
        / file:function$/ { listed = 1 }
        function count(text) {
            text = $1
            gsub(",", "", text)
            return text / requests
        }
        END {
            printf "%s: %.0f instructions, %.0f allocations\n", name, total, allocations / requests
            for (each in counts) if (counts[each] >= 5) printf "%8.0f  %s\n", counts[each], each | "sort -k1,1nr -k2"
        }
    ' "$profile" "$profile.txt"
done
