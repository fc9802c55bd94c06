#!/bin/sh
# Packs a binary of codex-shim that is there already:
#   .packaging/package.sh tar|deb|npm BINARY FOLDER
# The packages of one kind go to FOLDER, each with a .sha256 file beside it. The same commit and binary give the same bytes.
#
# BINARY.target has its target triple, if that is not the one of this machine; TOOL is then a codex-shim that runs here, which makes the
# manual pages. The software bill of materials is FOLDER/codex-shim.cdx.json, if it is there. Variables: VERSION replaces the version of
# Cargo.toml, for tests of upgrades. SOURCE_DATE_EPOCH replaces the time of the commit. SIZE_MAX is the largest binary in bytes. LEVEL is
# the level of compression, 1 to 9.

set -eu
umask 022

fail() {
    echo "package.sh: $1" >&2
    exit 1
}

[ $# -eq 3 ] || fail "usage: package.sh tar|deb|npm BINARY FOLDER"
kind=$1
[ -x "$2" ] || fail "$2 is not a program: build it first"
binary=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
mkdir -p "$3"
into=$(cd "$3" && pwd)
cd "$(dirname "$0")/.."

VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
export TZ=UTC LC_ALL=C

size=$(wc -c <"$binary" | tr -d ' ')
if [ "$size" -gt "${SIZE_MAX:-$size}" ]; then
    fail "$binary has $size bytes, more than $SIZE_MAX: find what has grown"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
stage=$work/stage

# The version of glibc that the binary needs: nothing if it is static, or for another system.
needed_libc() {
    .packaging/look.py --glibc "$binary"
}

target=$(cat "$binary.target" 2>/dev/null || rustc -vV | sed -n 's/^host: //p')
glibc=$(needed_libc)
case "$target" in *-linux-gnu) if [ -z "$glibc" ]; then target=${target%-gnu}-musl; fi ;; esac

# The names that Node and Debian have for the target.
case "$target" in
x86_64-*) cpu=x64 arch=amd64 ;;
aarch64-*) cpu=arm64 arch=arm64 ;;
*) cpu='' arch=$(dpkg --print-architecture 2>/dev/null || true) ;;
esac
case "$target" in
*-linux-*) os=linux ;;
*-apple-darwin) os=darwin ;;
*) fail "codex-shim does not run on $target" ;;
esac

# A codex-shim that runs here, with a home of its own.
shim() {
    env HOME="$work" CODEX_SHIM_HOME="$work/home" "${TOOL:-$binary}" "$@"
}

# The files of a package below "$stage", with the programs in "$1".
fill() {
    mkdir -p "$stage/bin" "$stage/share/man/man1" "$stage/share/bash-completion/completions" \
        "$stage/share/zsh/site-functions" "$stage/share/fish/vendor_completions.d" "$stage/share/doc/codex-shim/docs" \
        "$stage/share/systemd/user" "$stage/share/codex-shim"
    cp "$binary" "$stage/bin/codex-shim"
    chmod 755 "$stage/bin/codex-shim"
    shim completions --man "$stage/share/man/man1" >/dev/null
    shim completions bash >"$stage/share/bash-completion/completions/codex-shim"
    shim completions zsh >"$stage/share/zsh/site-functions/_codex-shim"
    shim completions fish >"$stage/share/fish/vendor_completions.d/codex-shim.fish"
    doc=$stage/share/doc/codex-shim
    cp LICENSE README.md CHANGELOG.md "$doc/"
    cp docs/*.md docs/*.svg docs/*.png "$doc/docs/"
    .packaging/licences.py "$target" >"$doc/THIRD-PARTY-LICENSES"
    if [ -f "$into/codex-shim.cdx.json" ]; then cp "$into/codex-shim.cdx.json" "$doc/"; fi
    shim login-file systemd "$1/codex-shim" >"$stage/share/systemd/user/codex-shim-hub.service"
    shim login-file launchd "$1/codex-shim" >"$stage/share/codex-shim/codex-shim.hub.plist"
}

# Writes "$2" with its digest from the folder "$1", whose entries are below "$3" there.
pack() {
    .packaging/tarball.py "$1" "$3" "$into/$2"
    digest "$2"
}

digest() {
    ( cd "$into" && { sha256sum "$1" 2>/dev/null || shasum -a 256 "$1"; } >"$1.sha256" )
    echo "$into/$1"
}

make_tar() {
    name=codex-shim-$VERSION-$(echo "$target" | sed -e 's/-unknown//' -e 's/-musl$//' -e 's/-apple-darwin$/-macos/')
    fill /usr/local/bin
    cp .packaging/install.sh "$stage/install.sh"
    cp LICENSE README.md "$stage/"
    pack "$stage" "$name.tar.gz" "$name"
}

make_deb() {
    command -v dpkg-deb >/dev/null || fail "there is no dpkg-deb: a .deb can be made on Debian and its relatives only"
    fill /usr/bin
    doc=$stage/usr/share/doc/codex-shim
    mkdir -p "$stage/usr/lib/systemd" "$stage/DEBIAN"
    mv "$stage/share/systemd/user" "$stage/usr/lib/systemd/user"
    rm -r "$stage/share/codex-shim" "$stage/share/systemd"
    mkdir -p "$stage/usr/share/zsh"
    mv "$stage/share/zsh/site-functions" "$stage/usr/share/zsh/vendor-completions"
    rmdir "$stage/share/zsh"
    mv "$stage/bin" "$stage/usr/bin"
    mv "$stage/share/"* "$stage/usr/share/"
    rmdir "$stage/share"
    gzip -n9 "$stage/usr/share/man/man1/"*
    mv "$doc/CHANGELOG.md" "$doc/changelog"
    gzip -n9 "$doc/changelog"
    { cat "$doc/LICENSE"; printf '\n\n'; cat "$doc/THIRD-PARTY-LICENSES"; } >"$doc/copyright"
    rm "$doc/LICENSE" "$doc/THIRD-PARTY-LICENSES"
    [ $os = linux ] || fail "a .deb is for Linux"
    libc=$glibc
    {
        echo "Package: codex-shim"
        echo "Version: $VERSION"
        echo "Architecture: $arch"
        echo "Maintainer: The codex-shim maintainers <maintainers@codex-shim.invalid>"
        if [ -n "$libc" ]; then echo "Depends: libc6 (>= $libc), libgcc-s1"; fi
        echo "Installed-Size: $(du -sk --apparent-size "$stage/usr" | cut -f 1)"
        echo "Section: devel"
        echo "Priority: optional"
        echo "Description: transparent proxy for codex app-server"
        echo " It stands between a Codex client and the server, records every message before"
        echo " it forwards it, tells the model what you ran in your terminal, and keeps"
        echo " approvals in a ledger, so that you can answer them from any terminal."
    } >"$stage/DEBIAN/control"
    ( cd "$stage" && find usr -type f | sort | xargs md5sum >DEBIAN/md5sums )
    find "$stage" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    name=codex-shim_${VERSION}_$arch.deb
    packed="-Zxz -z9"
    if [ -n "${LEVEL-}" ]; then packed="-Zgzip -z$LEVEL"; fi
    # shellcheck disable=SC2086
    dpkg-deb --root-owner-group $packed --build "$stage" "$into/$name" >/dev/null
    digest "$name"
}

make_npm() {
    [ -n "$cpu" ] || fail "Node has no name for the processor of $target"
    libc=
    if [ -n "$glibc" ]; then libc='  "libc": ["glibc"],
'; fi
    common="  \"version\": \"$VERSION\",
  \"license\": \"Apache-2.0\",
"
    fill /usr/local/bin
    # The package for this system: the binary, and what belongs to it.
    cp LICENSE "$stage/"
    main=$work/main
    mkdir -p "$main/bin" "$main/docs"
    mv "$stage/share/man/man1" "$main/man"
    rm -r "$stage/share/man" "$stage/share/doc/codex-shim/docs"
    rm "$stage/share/doc/codex-shim/LICENSE" "$stage/share/doc/codex-shim/README.md" "$stage/share/doc/codex-shim/CHANGELOG.md"
    cat >"$stage/package.json" <<END
{
  "name": "@codex-shim/$os-$cpu",
  "description": "The binary of codex-shim for $os on $cpu",
$common  "os": ["$os"],
  "cpu": ["$cpu"],
$libc  "preferUnplugged": true
}
END
    pack "$stage" "codex-shim-$os-$cpu-$VERSION.tgz" package
    cp .packaging/npm/binary.js .packaging/npm/install.js LICENSE README.md CHANGELOG.md "$main/"
    cp docs/*.md docs/*.svg docs/*.png "$main/docs/"
    cp .packaging/npm/launcher.js "$main/bin/codex-shim"
    chmod 755 "$main/bin/codex-shim"
    # One for each system whose package is beside this one.
    packages=$(cd "$into" && for package in codex-shim-linux-*"-$VERSION.tgz" codex-shim-darwin-*"-$VERSION.tgz"; do
        if [ -f "$package" ]; then echo "$package" | sed "s|^codex-shim-\\(.*\\)-$VERSION.tgz$|\"@codex-shim/\\1\": \"$VERSION\"|"; fi
    done | paste -s -d , - | sed 's/,/, /g')
    pages=$(cd "$main" && find man -name '*.1' | sort | sed 's|.*|"./&"|' | paste -s -d , -)
    cat >"$main/package.json" <<END
{
  "name": "codex-shim",
  "description": "Transparent proxy for codex app-server: records every message, shows the model your terminal, keeps approvals",
$common  "os": ["linux", "darwin"],
  "bin": { "codex-shim": "bin/codex-shim" },
  "man": [$pages],
  "engines": { "node": ">=18" },
  "scripts": { "postinstall": "node install.js" },
  "optionalDependencies": { $packages }
}
END
    pack "$main" "codex-shim-$VERSION.tgz" package
}

case "$kind" in
tar) make_tar ;;
deb) make_deb ;;
npm) make_npm ;;
*) fail "$kind is not tar, deb or npm" ;;
esac
