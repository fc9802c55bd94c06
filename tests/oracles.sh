#!/bin/sh
# Installs the published scanners with which tests/it/oracles.rs measures the masking, into the given folder. If a scanner
# cannot be installed, this says so, and the test is skipped.

set -u
into=$1
mkdir -p "$into"

skipped() {
    echo "SKIPPED: $1 could not be installed (a network is needed): masking is not measured with it" >&2
}

# Runs a command, within five minutes on systems with timeout(1).
limited() {
    if command -v timeout >/dev/null; then timeout 300 "$@"; else "$@"; fi
}

if [ ! -x "$into/python/bin/detect-secrets" ]; then
    { python3 -m venv "$into/python" &&
        limited "$into/python/bin/pip" install --quiet --disable-pip-version-check detect-secrets==1.5.0; } || skipped detect-secrets
fi
if [ ! -x "$into/node_modules/.bin/secretlint" ]; then
    limited npm install --prefix "$into" --no-save --no-audit --no-fund --loglevel=error --ignore-scripts \
        "secretlint@12.0.0" "@secretlint/secretlint-rule-preset-recommend@12.0.0" || skipped secretlint
fi
