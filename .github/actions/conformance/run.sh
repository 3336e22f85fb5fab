#!/usr/bin/env bash
# Builds tidegate from the checkout that this file is in, runs it in the current folder, and writes the step summary of
# GitHub Actions. Works in any CI system with bash and cargo.
#
#   TIDEGATE_TARGETS    targets, separated by commas; the default is memory,redis
#   TIDEGATE_FIXTURES   folder of fixtures; the default is the suite's own
#   TIDEGATE_RULES      rules file that gate fixtures without rules test
#   TIDEGATE_FILTER     patterns of fixture ids, separated by commas
#   TIDEGATE_BASELINE   report or summary to compare with
#   TIDEGATE_REPORT     folder for the reports; the default is tidegate-report
#   TIDEGATE_PROGRAM    a tidegate that is built already
#   TIDEGATE_SETUP      yes installs what the targets need, also outside the checkout; no installs nothing there
set -euo pipefail

report=${TIDEGATE_REPORT:-tidegate-report}
arguments=(run --setup --require all --out "$report")

# each OPTION LIST: adds the option once for each part of a list separated by commas.
each() {
    local parts part
    IFS=, read -ra parts <<<"$2"
    for part in "${parts[@]}"; do
        part=${part// /}
        [ -z "$part" ] || arguments+=("$1" "$part")
    done
}
each --target "${TIDEGATE_TARGETS:-memory,redis}"
each --filter "${TIDEGATE_FILTER:-}"
[ -z "${TIDEGATE_FIXTURES:-}" ] || arguments+=(--fixtures "$TIDEGATE_FIXTURES")
[ -z "${TIDEGATE_RULES:-}" ] || arguments+=(--rules "$TIDEGATE_RULES")
[ -z "${TIDEGATE_BASELINE:-}" ] || arguments+=(--baseline "$TIDEGATE_BASELINE")

program=${TIDEGATE_PROGRAM:-}
if [ -z "$program" ]; then
    checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
    cargo build --release --locked --manifest-path "$checkout/Cargo.toml" --bin tidegate
    program=$checkout/target/release/tidegate
fi

# The summary of an earlier run must not be taken for this one's.
rm -f "$report/report.md"
status=0
"$program" "${arguments[@]}" || status=$?
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$report/report.md" ]; then
    cat "$report/report.md" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
