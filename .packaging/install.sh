#!/bin/sh
# Installs codex-shim from the folder that this file is in, or removes it again:
#   ./install.sh [PREFIX]             installs below PREFIX, by default ~/.local; installs over an earlier version, too
#   ./install.sh --remove [PREFIX]    removes each file and folder that it has installed there
# The list of installed files is PREFIX/share/codex-shim/installed. A copy of this script is beside it.

set -eu

fail() {
    echo "install.sh: $1" >&2
    exit 1
}

remove=
if [ "${1-}" = --remove ]; then
    remove=yes
    shift
fi
case "${1-}" in -*) fail "unknown option $1; the first lines of this script list what it takes" ;; esac
[ $# -le 1 ] || fail "one PREFIX is enough"
prefix=${1:-${HOME:?HOME is not set: name a PREFIX}/.local}
case "$prefix" in /*) ;; *) prefix=$PWD/$prefix ;; esac
list=$prefix/share/codex-shim/installed

# Removes the entries that `list` names and the file "$1" does not. A folder that holds something else stays.
remove_all_but() {
    [ -r "$list" ] || fail "$list cannot be read: run this as the user who has installed it"
    sort -r "$list" | while IFS= read -r entry; do
        if grep -qxF -e "$entry" "$1"; then continue; fi
        if [ -d "$prefix/$entry" ] && [ ! -L "$prefix/$entry" ]; then
            rmdir "$prefix/$entry" 2>/dev/null || true
        else
            rm -f "$prefix/$entry"
        fi
    done
}

if [ "$remove" ]; then
    [ -f "$list" ] || fail "$list does not exist: nothing was installed there"
    [ -w "$prefix/bin" ] || fail "$prefix/bin cannot be written to: run this as the user who has installed it"
    unwraps=$("$prefix/bin/codex-shim" unwrap --dry-run) || fail "it is not known whether tools start codex-shim: see above"
    if printf '%s\n' "$unwraps" | grep -q '^would'; then
        fail "tools still start codex-shim: run \`$prefix/bin/codex-shim unwrap\` first"
    fi
    remove_all_but /dev/null
    echo "removed codex-shim from $prefix; what it has recorded is still in \$CODEX_SHIM_HOME (default: ~/.local/state/codex-shim)"
    exit
fi

from=$(cd "$(dirname "$0")" && pwd)
[ -x "$from/bin/codex-shim" ] || fail "$from/bin/codex-shim does not exist: run this script in the unpacked folder"

version=$("$from/bin/codex-shim" --version) || fail "$from/bin/codex-shim does not run on this machine"

# The file that has the hub started at login.
login_file() {
    "$from/bin/codex-shim" login-file "$1" "$prefix/bin/codex-shim"
}
login_file systemd >/dev/null || fail "name another PREFIX"

# New folders, then files, as paths below PREFIX.
now=$(mktemp)
trap 'rm -f "$now"' EXIT
umask 022
mkdir -p "$prefix"
prefix=$(cd "$prefix" && pwd)
list=$prefix/share/codex-shim/installed
( cd "$from" && find bin share -type d | sort ) | while IFS= read -r folder; do
    if [ ! -d "$prefix/$folder" ]; then
        mkdir "$prefix/$folder"
        echo "$folder"
    elif [ -f "$list" ] && grep -qxF -e "$folder" "$list"; then
        echo "$folder"
    fi
done >"$now"
( cd "$from" && find bin share -type f | sort ) >>"$now"
printf '%s\n' share/codex-shim/installed share/codex-shim/install.sh >>"$now"

( cd "$from" && find bin share -type f ) | while IFS= read -r file; do
    # A file that is running cannot be written to, but another one can take its name.
    cp "$from/$file" "$prefix/$file.new"
    if [ -x "$from/$file" ]; then chmod 755 "$prefix/$file.new"; else chmod 644 "$prefix/$file.new"; fi
    mv -f "$prefix/$file.new" "$prefix/$file"
done
login_file systemd >"$prefix/share/systemd/user/codex-shim-hub.service"
login_file launchd >"$prefix/share/codex-shim/codex-shim.hub.plist"
cp "$from/install.sh" "$prefix/share/codex-shim/install.sh"
chmod 755 "$prefix/share/codex-shim/install.sh"
if [ -f "$list" ]; then remove_all_but "$now"; fi
cp "$now" "$list"
chmod 644 "$list"

echo "installed $version in $prefix"
case ":${PATH-}:" in
*":$prefix/bin:"*) ;;
*) echo "$prefix/bin is not on your PATH: add it in your shell's start-up file" ;;
esac
