#!/bin/sh
# Installs codex-shim into the given folder with `cargo install`, tries it, and removes it again.

set -eu
umask 022
cd "$(dirname "$0")/.."
mkdir -p "$1"
into=$(cd "$1" && pwd)

# A debug build takes most of its dependencies from the one of the tests.
cargo install --quiet --path . --locked --features fleet --debug --root "$into" --target-dir "${CARGO_TARGET_DIR:-target}"
trial() {
    env -i HOME="$into/home" PATH="${path:-$into/bin:/usr/bin:/bin}" "$into/bin/codex-shim" "$@"
}
mkdir -p "$into/home"
trial --version
trial demo >/dev/null
trial wrap --help >/dev/null
# There is no codex on this PATH, and doctor says so.
path=$into/bin
if trial doctor >"$into/doctor"; then
    echo "install.sh: doctor missed that there is no codex" >&2
    exit 1
fi
grep -q "no codex found" "$into/doctor"
cargo uninstall --quiet --root "$into" codex-shim
left=$(find "$into" -type f ! -name '.crates*' ! -name doctor)
[ -z "$left" ] || { echo "install.sh: this is left: $left" >&2; exit 1; }
rm -r "$into"
echo "cargo install: installed, tried and removed"
