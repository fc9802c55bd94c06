#!/usr/bin/env python3
"""Builds codex-shim with a seeded bug from each patch in `bugs/`, and runs the checker until it finds that bug.

The text in front of a patch says what is wrong, the claims that may find it, and the runs to try, in their order:

    An answer reaches the server before it is stored.
    claims: 2
    run: --workload relay --seed 1 --faults lock_ledger

The source is a copy below `target/checker-bugs`, with a target folder of its own.
"""

import argparse
import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUGS = os.path.join(ROOT, "target", "checker-bugs")
SOURCE, TARGET = os.path.join(BUGS, "source"), os.path.join(BUGS, "target")
PATCHES = os.path.join(HERE, "bugs")


@dataclass
class Bug:
    name: str
    path: str
    what: str
    claims: list
    runs: list

    @staticmethod
    def read(path):
        with open(path, encoding="utf-8") as file:
            head = file.read().partition("\ndiff --git")[0].splitlines()
        claims = next(line.partition(":")[2].split(",") for line in head if line.startswith("claims:"))
        runs = [shlex.split(line.partition(":")[2]) for line in head if line.startswith("run:")]
        return Bug(os.path.basename(path).removesuffix(".patch"), path, head[0], [int(each) for each in claims], runs)


def all_bugs():
    return [Bug.read(path) for path in sorted(glob.glob(os.path.join(PATCHES, "*.patch")))]


def copy_source():
    """Brings the copy to the state of this folder, and leaves files alone that have not changed: cargo goes by their times."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source, copy = os.path.join(ROOT, name), os.path.join(SOURCE, name)
        if os.path.isfile(source) and not is_same(source, copy):
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copy(source, copy)


def is_same(source, copy):
    if not os.path.isfile(copy):
        return False
    with open(source, "rb") as one, open(copy, "rb") as other:
        return one.read() == other.read()


def apply(bug, *options):
    # The copy is in a folder that git ignores, below a repository.
    arguments = ["git", "apply", *options, bug.path]
    done = subprocess.run(arguments, cwd=SOURCE, capture_output=True, text=True, env={**os.environ, "GIT_CEILING_DIRECTORIES": BUGS})
    return done.stderr if done.returncode else ""


def build():
    arguments = ["cargo", "build", "--locked", "--features", "fleet", "--quiet"]
    done = subprocess.run(arguments, cwd=SOURCE, capture_output=True, text=True, env={**os.environ, "CARGO_TARGET_DIR": TARGET})
    return done.stderr if done.returncode else ""


def find(bug, seconds):
    """The claim that found it, and the run; the claims that others found, if none did."""
    others = []
    for run in bug.runs:
        variables = dict(each.split("=", 1) for each in run if re.fullmatch(r"[A-Z_]+=.*", each))
        options = [each for each in run if each.split("=")[0] not in variables]
        limit = [] if "--rounds" in options else ["--seconds", str(seconds)]
        arguments = [sys.executable, "-B", os.path.join(HERE, "run.py"), "--binary", os.path.join(TARGET, "debug", "codex-shim"),
                     *limit, *options]
        done = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, **variables})
        claims = [int(claim) for claim in re.findall(r"^VIOLATION of claim (\d+)", done.stdout, re.MULTILINE)]
        for claim in claims:
            if claim in bug.claims:
                folder = re.search(r"all logs are in (.*)/[^/]+$", done.stdout, re.MULTILINE)
                shutil.rmtree(folder.group(1), ignore_errors=True)
                return claim, shlex.join(run)
        others += claims or re.findall(r"GIVEN UP: (.*)", done.stdout)
    return None, f"found by others: {sorted(set(map(str, others)))}" if others else "not found"


def try_bug(bug, seconds):
    """One row of the table, and whether the bug was found."""
    copy_source()
    problem = apply(bug)
    if problem:
        return f"| {bug.name} | does not apply: {problem.strip()} | | |", False
    try:
        begun_at = time.monotonic()
        problem = build()
        if problem:
            return f"| {bug.name} | does not build: {problem.strip()} | | |", False
        built_s, begun_at = time.monotonic() - begun_at, time.monotonic()
        claim, run = find(bug, seconds)
        found_s = time.monotonic() - begun_at
        return f"| {bug.what} (`{bug.name}`) | {claim or 'none'} | {found_s:.0f} | {run}, built in {built_s:.0f} s |", bool(claim)
    finally:
        apply(bug, "--reverse")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120, help="how long to try each run of a bug")
    parser.add_argument("names", nargs="*", help="only bugs with one of these in their names")
    options = parser.parse_args()
    bugs = [bug for bug in all_bugs() if not options.names or any(name in bug.name for name in options.names)]
    print("| bug | claim | seconds | run |\n|---|---|---|---|", flush=True)
    missed = []
    for bug in bugs:
        row, is_found = try_bug(bug, options.seconds)
        print(row, flush=True)
        missed += [] if is_found else [bug.name]
    print(f"{len(bugs) - len(missed)} of {len(bugs)} found" + (f"; not found: {', '.join(missed)}" if missed else ""))
    return 1 if missed or not bugs else 0


if __name__ == "__main__":
    sys.exit(main())
