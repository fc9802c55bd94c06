#!/bin/sh
# Builds the binary for the packages: .packaging/build.sh PROFILE FILE [TARGET]
# Without TARGET it is for this machine: static where rustup has the musl target of this machine and there is a musl-gcc; otherwise
# this says which C library it needs. A TARGET is a target triple of rustc; zig compiles and links the C code of another one, see `make
# cross-tools`. No path of this machine is in the binary, so that another checkout of the same commit gives the same bytes.

set -eu
cd "$(dirname "$0")/.."
profile=$1
file=$2
target=${3-}

has_target() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1" ]
}

host=$(rustc -vV | sed -n 's/^host: //p')
if [ -z "$target" ]; then
    target=$host
    musl=$(echo "$host" | sed -n 's/-linux-gnu$/-linux-musl/p')
    if [ -n "$musl" ]; then
        if has_target "$musl" && command -v musl-gcc >/dev/null; then
            target=$musl
        else
            echo "build.sh: there is no target $musl (rustup target add) or no musl-gcc: the binary is not static" >&2
        fi
    fi
fi
has_target "$target" || { echo "build.sh: there is no target $target: \`rustup target add $target\` installs it" >&2; exit 1; }

# What compiles and links for the target, and with which name of it.
build=build
linked_for=$target
case "$target" in
*-linux-gnu) if [ -n "${3-}" ]; then build=zigbuild; fi ;;
"$host") ;;
"${host%-gnu}-musl") command -v musl-gcc >/dev/null || build=zigbuild ;;
*) build=zigbuild ;;
esac
if [ $build = zigbuild ]; then
    zig=$PWD/target/tools/zig/bin
    [ -x "$zig/cargo-zigbuild" ] || { echo "build.sh: there is no zig for $target: \`make cross-tools\` installs it" >&2; exit 1; }
    PATH=$zig:$PATH
    # What the oldest systems that Rust supports have. Source: its list of platforms.
    case "$target" in *-linux-gnu) linked_for=$target.2.17 ;; esac
    export MACOSX_DEPLOYMENT_TARGET=11.0
fi

cargo fetch --quiet --locked
between=$(printf '\037')
flags=--remap-path-prefix=$PWD=/codex-shim
for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    flags=$flags$between--remap-path-prefix=$folder=/crates
done
if [ -n "${CARGO_TARGET_DIR-}" ]; then flags=$flags$between--remap-path-prefix=$CARGO_TARGET_DIR=/codex-shim/target; fi
case "$target" in
*-linux-musl)
    # Packs the relocations, which then take a hundredth of the space. The C library in a static binary understands this form; the one
    # of a machine may be too old for it.
    if [ $build = build ] && ld --help 2>/dev/null | grep -q -e '-z pack-relative-relocs'; then
        flags=$flags$between-Clink-arg=-Wl,-z,pack-relative-relocs
    fi
    ;;
*-apple-darwin)
    # zig knows libSystem, and these files the rest. A library of which nothing is used is not loaded.
    if [ $build = zigbuild ]; then
        flags=$flags$between-Clink-arg=-F$PWD/.packaging/macos$between-Clink-arg=-Wl,-dead_strip_dylibs
    fi
    ;;
esac

# With the list of its dependencies, if `make package-tools` could install what adds it.
# It calls cargo with its own path as the wrapper of rustc. Cargo puts that into the names of symbols, by which the linker sorts, so the
# wrapper gets a name that is the same in each checkout.
cargo=cargo
if [ -x target/tools/bin/cargo-auditable ]; then
    PATH=$PWD/target/tools/bin:$PATH
    named=$PWD/target/tools/cargo-with-a-named-wrapper
    printf '#!/bin/sh\nRUSTC_WORKSPACE_WRAPPER=cargo-auditable exec cargo "$@"\n' >"$named"
    chmod 755 "$named"
    cargo="cargo-auditable auditable"
    CARGO=$named
    export CARGO
fi
made=$(CARGO_ENCODED_RUSTFLAGS=$flags CARGO_INCREMENTAL=0 $cargo $build --profile "$profile" --locked --features fleet --bin codex-shim \
    --target "$linked_for" --message-format json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
[ -x "$made" ] || { echo "build.sh: cargo built no binary" >&2; exit 1; }

mkdir -p "$(dirname "$file")"
cp "$made" "$file.new"
mv -f "$file.new" "$file"
echo "$target" >"$file.target"
.packaging/look.py "$file"
# The packages promise what the oldest systems have.
case "$linked_for" in
*.2.17)
    newest=$(.packaging/look.py --glibc "$file")
    echo "$newest" | awk -F. '{ exit !($1 == 2 && $2 <= 17) }' || { echo "build.sh: $file needs glibc $newest, not 2.17" >&2; exit 1; }
    ;;
esac
