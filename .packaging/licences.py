#!/usr/bin/env python3
"""Prints the licences of all that is linked into codex-shim: the text of each licence once, after the names of its crates.

Usage: licences.py TARGET, where TARGET is a target triple of rustc. The output depends on Cargo.lock alone, and needs no network
if the crates are there. It fails if a crate has neither a licence file nor a licence whose text another crate has.
"""

import json
import os
import re
import subprocess
import sys

FILE = re.compile(r"(licen[cs]e|copying|unlicense|notice|copyright)([-._].*)?", re.IGNORECASE)
# The first words of a text by which one is found for a crate that has no file of its own.
KNOWN = {"MIT": "Permission is hereby granted, free of charge", "Apache-2.0": "Apache License"}

# What a crate links in besides itself, and what is linked in without being a crate.
BESIDES = """\
SQLite, the database engine in libsqlite3-sys, is in the public domain.

The standard library of Rust is linked in. It is under MIT OR Apache-2.0, copyright The Rust Project Contributors.
"""
MUSL = """
The C library musl is linked in. It is under MIT, copyright Rich Felker and others.
"""


def linked(target):
    """The crates that are linked in, without those that only run while building."""
    command = ["cargo", "metadata", "--locked", "--features", "fleet", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = metadata["resolve"]["root"]
    found, left = set(), [root]
    while left:
        for dependency in nodes[left.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in found:
                found.add(dependency["pkg"])
                left.append(dependency["pkg"])
    # Those of this workspace have no source.
    packages = [package for package in metadata["packages"] if package["id"] in found and package["source"]]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """The texts of the licence files of a crate."""
    folder = os.path.dirname(package["manifest_path"])
    names = sorted(name for name in os.listdir(folder) if FILE.fullmatch(name))
    if package["license_file"] and package["license_file"] not in names:
        names.append(package["license_file"])
    for name in names:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield "\n".join(line.rstrip() for line in file.read().strip().splitlines())


def main(target):
    packages = linked(target)
    crates, without = {}, []
    for package in packages:
        name = f"{package['name']} {package['version']} ({package['license'] or 'see its licence'})"
        of = list(texts(package))
        for text in of:
            crates.setdefault(text, []).append(name)
        if not of:
            without.append((f"{name}, copyright {', '.join(package['authors']) or 'its authors'}", package["license"] or ""))
    for name, expression in without:
        ours = [key for key in KNOWN if key in expression]
        found = [text for text in crates for key in ours[:1] if KNOWN[key] in text[:2000]]
        if not found:
            sys.exit(f"licences.py: {name} has no licence file, and no other crate has the text of its licence")
        # The shortest one has the least that is another crate's.
        crates[min(found, key=lambda text: (len(text), text))].append(f"{name}; it has no licence file of its own")
    print("codex-shim is under Apache-2.0; see LICENSE. These parts of others are linked into it.\n")
    print(BESIDES + (MUSL if "musl" in target else ""))
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license'] or 'see below'}")
    for text, names in sorted(crates.items(), key=lambda entry: entry[1]):
        print("\n" + "=" * 80 + "\n" + "\n".join(names) + "\n" + "-" * 80 + "\n\n" + text)


main(*sys.argv[1:])
