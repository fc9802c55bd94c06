#!/bin/sh
# Writes the software bill of materials of the binary, CycloneDX as JSON, to a file: packaging/sbom.sh FILE
# Its bytes depend on the commit alone.

set -eu
cd "$(dirname "$0")/.."
file=$1
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# The tool writes beside Cargo.toml only, and names the folder of the checkout.
made=codex-shim-sbom-$$
trap 'rm -f "$made.json"' EXIT
PATH=$PWD/target/tools/bin:$PATH cargo cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --override-filename "$made" \
    --target "$(rustc -vV | sed -n 's/^host: //p')"
mkdir -p "$(dirname "$file")"
sed "s|file://$PWD|file:///codex-shim|g" "$made.json" >"$file"
