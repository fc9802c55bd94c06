#!/usr/bin/env python3
"""Says of programs for any system what they are: .packaging/look.py FILE..., or with --glibc the version of glibc alone.

For each: the format and the processor, its size, the libraries that it needs, the newest glibc that it asks for, and for macOS
whether the hashes of its signature are those of its pages, without which an arm64 Mac does not start it. Fails if one is not right.
"""

import hashlib
import struct
import sys

ELF_PROCESSORS = {62: "x86_64", 183: "aarch64"}
MACHO_PROCESSORS = {0x01000007: "x86_64", 0x0100000C: "arm64"}

# Source: loader.h and cs_blobs.h of macOS.
LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB, LC_CODE_SIGNATURE, LC_BUILD_VERSION = 0xC, 0x80000018, 0x1D, 0x32
# The oldest macOS that Rust supports on arm64.
OLDEST_MACOS = 11
SUPERBLOB, CODE_DIRECTORY, SHA256 = 0xFADE0CC0, 0xFADE0C02, 2


class Wrong(Exception):
    """The program cannot run where it is for."""


def elf(data):
    processor = ELF_PROCESSORS[struct.unpack_from("<H", data, 18)[0]]
    section_at, = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, section_at + entry_size * number) for number in range(count)]

    def text(strings, at):
        start = sections[strings][4] + at
        return data[start:data.index(b"\0", start)].decode()

    needed, glibc = [], (0,)
    for _, kind, _, _, offset, size, link, info, _, _ in sections:
        if kind == 6:  # SHT_DYNAMIC
            for at in range(offset, offset + size, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == 1:  # DT_NEEDED
                    needed.append(text(link, value))
        if kind == 0x6FFFFFFE:  # SHT_GNU_verneed
            at = offset
            for _ in range(info):
                _, entries, _, first, following = struct.unpack_from("<HHIII", data, at)
                entry = at + first
                for _ in range(entries):
                    _, _, _, name, after = struct.unpack_from("<IHHII", data, entry)
                    version = text(link, name)
                    if version.startswith("GLIBC_") and version[6].isdigit():
                        glibc = max(glibc, tuple(int(part) for part in version[6:].split(".")))
                    entry += after
                at += following
    version = ".".join(map(str, glibc)) if glibc > (0,) else ""
    return f"Linux {processor}", needed, f"glibc {version} or newer" if version else "no glibc", version


def signature_of(data, offset, space):
    magic, length, count = struct.unpack_from(">III", data, offset)
    if magic != SUPERBLOB or length > space:
        raise Wrong("its signature cannot be read")
    for number in range(count):
        _, at = struct.unpack_from(">II", data, offset + 12 + 8 * number)
        directory = offset + at
        if struct.unpack_from(">I", data, directory)[0] != CODE_DIRECTORY:
            continue
        hashes, = struct.unpack_from(">I", data, directory + 16)
        slots, limit = struct.unpack_from(">II", data, directory + 28)
        size, kind, _, page_bits = struct.unpack_from(">BBBB", data, directory + 36)
        if kind != SHA256 or size != 32:
            raise Wrong("its signature has hashes of an unknown kind")
        page = 1 << page_bits
        if limit != offset or slots != -(-limit // page):
            raise Wrong("its signature does not cover all that is ahead of it")
        for slot in range(slots):
            code = data[slot * page:min((slot + 1) * page, limit)]
            at = directory + hashes + size * slot
            if hashlib.sha256(code).digest() != data[at:at + size]:
                raise Wrong(f"page {slot} is not the one that was signed")
        return f"signed, {slots} pages are as signed"
    raise Wrong("its signature signs no code")


def macho(data):
    processor = MACHO_PROCESSORS[struct.unpack_from("<I", data, 4)[0]]
    count, = struct.unpack_from("<I", data, 16)
    needed, signature, oldest, at = [], None, "", 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        if command in (LC_LOAD_DYLIB, LC_LOAD_WEAK_DYLIB):
            name, = struct.unpack_from("<I", data, at + 8)
            needed.append(data[at + name:at + size].split(b"\0")[0].decode())
        elif command == LC_CODE_SIGNATURE:
            signature = signature_of(data, *struct.unpack_from("<II", data, at + 8))
        elif command == LC_BUILD_VERSION:
            version, = struct.unpack_from("<I", data, at + 12)
            if version >> 16 > OLDEST_MACOS:
                raise Wrong(f"it asks for macOS {version >> 16}")
            oldest = f"macOS {version >> 16}.{version >> 8 & 255} or newer, "
        at += size
    if signature is None and processor == "arm64":
        raise Wrong("it has no signature")
    return f"macOS {processor}", needed, oldest + (signature or "not signed"), ""


def look(path, only_glibc):
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] == b"\x7fELF":
        system, needed, more, glibc = elf(data)
    elif data[:4] == b"\xcf\xfa\xed\xfe":
        system, needed, more, glibc = macho(data)
    else:
        raise Wrong("it is no program of Linux or macOS")
    if only_glibc:
        return glibc
    return f"{path}: {system}, {len(data) / 1048576:.1f} MiB, needs {', '.join(needed) or 'no library'}; {more}"


def main():
    failed, only_glibc = False, sys.argv[1:2] == ["--glibc"]
    for path in sys.argv[2 if only_glibc else 1:]:
        try:
            print(look(path, only_glibc))
        except (Wrong, OSError, KeyError, struct.error, ValueError) as error:
            failed = True
            print(f"{path}: {error}", file=sys.stderr)
    sys.exit(failed)


main()
