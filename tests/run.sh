#!/bin/sh
# Runs the tests with cargo-nextest, or with cargo alone if that is missing:
#   tests/run.sh [FILTER...]
# A filter is a part of the names of the tests. Before the last line, which is the summary, come the skipped and the slowest tests.

set -eu
cd "$(dirname "$0")/.."

nextest=target/tools/bin/cargo-nextest
if [ ! -x "$nextest" ]; then
    nextest=$(command -v cargo-nextest) || {
        echo "There is no cargo-nextest: the tests run one or two at a time, which takes much longer" >&2
        exec cargo test --locked --workspace --features fleet --no-fail-fast --lib --test it --test sim -- "$@"
    }
fi

report=target/nextest/default/junit.xml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -f "$report"
echo 1 >"$work/status"
{
    status=0
    "$nextest" nextest run --locked --color never --workspace --features fleet --lib --test it --test sim "$@" 2>&1 || status=$?
    echo "$status" >"$work/status"
} | tee "$work/log"
if [ -f "$report" ]; then
    sed -n 's/.*\(SKIPPED: .*\)/\1/p' "$report" | sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' | sort -u
    echo "The slowest tests, in seconds:"
    sed -n 's/.*<testcase name="\([^"]*\)" .*time="\([0-9.]*\)".*/\2 \1/p' "$report" | sort -rn | head -n 10
fi
grep -E '^ *Summary ' "$work/log" | tail -n 1
exit "$(cat "$work/status")"
