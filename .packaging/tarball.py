#!/usr/bin/env python3
"""Writes a folder as a .tar.gz whose bytes depend on its names, contents and execute permissions alone.

Usage: tarball.py FOLDER NAME FILE: the entries of FOLDER are below NAME in FILE. SOURCE_DATE_EPOCH is the time of all entries.
"""

import gzip
import os
import sys
import tarfile


def main(folder, name, file):
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    level = int(os.environ.get("LEVEL", "9"))

    def plain(entry):
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with open(file, "wb") as raw, gzip.GzipFile("", "wb", level, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
            # `add` sorts the entries of each folder.
            tar.add(folder, name, filter=plain)


main(*sys.argv[1:])
