#!/bin/sh
# Writes the software bill of materials of the binary, CycloneDX as JSON, to a file: .packaging/sbom.sh FILE TARGET
# Its bytes depend on the commit alone.

set -eu
cd "$(dirname "$0")/.."
file=$1
target=$2
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

# The tool writes beside each Cargo.toml, and names the folder of the checkout.
made=codex-shim-sbom-$$
trap 'rm -f "$made.json" src/*/"$made.json"' EXIT
PATH=$PWD/target/tools/bin:$PATH cargo cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps --features fleet \
    --override-filename "$made" --target "$target"
mkdir -p "$(dirname "$file")"
# Addresses of homepages and of a registry are no part of what was linked in.
python3 - "$made.json" "$PWD" >"$file" <<'END'
import json
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read().replace(f"file://{sys.argv[2]}", "file:///codex-shim")
bill = json.loads(re.sub(r"registry\+https://[^#\"]*#", "registry#", text))
for component in bill["components"]:
    component.pop("externalReferences", None)
print(json.dumps(bill, indent=2, ensure_ascii=False))
END
