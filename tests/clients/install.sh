#!/bin/sh
# Installs the published clients of codex's app-server that tests/it/clients.rs drives into the given folder. If a client
# cannot be installed, this says so, and its tests are skipped.

set -u
into=$1
python_packages="pydantic==2.13.0 packaging==26.2 websockets==16.0"

skipped() {
    echo "SKIPPED: $1 could not be installed: tests with it are skipped" >&2
}

# Runs a command, within five minutes on systems with timeout(1).
limited() {
    if command -v timeout >/dev/null; then timeout 300 "$@"; else "$@"; fi
}

# The first Python that is new enough for all of them.
python=
for candidate in python3.14 python3.13 python3.12 "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python python3; do
    if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
        python=$candidate
        break
    fi
done

mkdir -p "$into"
if [ -z "$python" ]; then
    echo "SKIPPED: there is no Python 3.12 or later: tests with clients in Python are skipped" >&2
elif ! "$into/python/bin/python" -c 'import openai_codex, codex_app_server_sdk' 2>/dev/null; then
    "$python" -m venv "$into/python"
    pip="limited $into/python/bin/pip install --quiet --disable-pip-version-check"
    # Without the bundled codex, which is large and not the version under test.
    # shellcheck disable=SC2086
    { $pip $python_packages && $pip --no-deps openai-codex==0.163.0; } || skipped openai-codex
    $pip codex-app-server-sdk==0.4.1 || skipped codex-app-server-sdk
fi

for package in ai-sdk-provider-codex-cli@2.2.1 @agentclientprotocol/codex-acp@2.6.0; do
    if [ ! -d "$into/node_modules/${package%@*}" ]; then
        limited npm install --prefix "$into" --no-audit --no-fund --loglevel=error --ignore-scripts --omit=optional "$package" ||
            skipped "$package"
    fi
done
