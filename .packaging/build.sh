#!/bin/sh
# Builds the binary for the packages: .packaging/build.sh PROFILE FILE
# It is static where rustup has the musl target of this machine and there is a musl-gcc; otherwise this says which C library it
# needs. No path of this machine is in it, so that another checkout of the same commit gives the same bytes.

set -eu
cd "$(dirname "$0")/.."
profile=$1
file=$2

host=$(rustc -vV | sed -n 's/^host: //p')
target=$host
musl=$(echo "$host" | sed -n 's/-linux-gnu$/-linux-musl/p')
if [ -n "$musl" ]; then
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$musl" ] && command -v musl-gcc >/dev/null; then
        target=$musl
    else
        echo "build.sh: there is no target $musl (rustup target add) or no musl-gcc: the binary is not static" >&2
    fi
fi

cargo fetch --quiet --locked
between=$(printf '\037')
flags=--remap-path-prefix=$PWD=/codex-shim
for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    flags=$flags$between--remap-path-prefix=$folder=/crates
done
if [ -n "${CARGO_TARGET_DIR-}" ]; then flags=$flags$between--remap-path-prefix=$CARGO_TARGET_DIR=/codex-shim/target; fi
# Packs the relocations, which then take a hundredth of the space. The C library in a static binary understands this form; the one of
# a machine may be too old for it.
case "$target" in
*-linux-musl)
    if ld --help 2>/dev/null | grep -q -e '-z pack-relative-relocs'; then
        flags=$flags$between-Clink-arg=-Wl,-z,pack-relative-relocs
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
made=$(CARGO_ENCODED_RUSTFLAGS=$flags CARGO_INCREMENTAL=0 $cargo build --profile "$profile" --locked --features fleet --bin codex-shim \
    --target "$target" --message-format json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
[ -x "$made" ] || { echo "build.sh: cargo built no binary" >&2; exit 1; }

mkdir -p "$(dirname "$file")"
cp "$made" "$file.new"
mv -f "$file.new" "$file"
echo "$target" >"$file.target"
command -v objdump >/dev/null || { echo "$file: there is no objdump to see which C library it needs"; exit 0; }
libc=$(objdump -T "$file" 2>/dev/null | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\).*/\1/p' | sort -t. -k1,1n -k2,2n | tail -n 1)
wc -c <"$file" | awk -v file="$file" -v libc="$libc" \
    '{ printf "%s: %.1f MiB, %s\n", file, $1 / 1048576, libc == "" ? "static" : "needs glibc " libc " or newer" }'
