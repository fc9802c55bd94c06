#!/usr/bin/env python3
"""Runs codex-shim under load and faults, and checks nine claims about what the parties saw.

The status is 1 after a violation, and 3 if the run says nothing: a round was given up, or there was no chance to find something.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checker.callers import key_of  # noqa: E402
from checker.claims import check  # noqa: E402
from checker.disk import Disk  # noqa: E402
from checker.facts import Report  # noqa: E402
from checker.fleet import Fleet, FleetNemesis  # noqa: E402
from checker.history import load  # noqa: E402
from checker.mutants import MUTANTS, try_mutants  # noqa: E402
from checker.nemesis import Nemesis, ignore_sockets  # noqa: E402
from checker.workloads import WORKLOADS, Approver, Workload, has_come, wait_for  # noqa: E402

WORKLOADS = {**WORKLOADS, "fleet": Fleet}
# A round takes seconds, or minutes on a machine that has no time for it.
ROUND_S_MAX = 1800
# What a run must have had a chance to find; more rounds follow until it had, but no more than these.
ROUNDS_MORE_MAX = 20
NEEDED = ["requests", "answers_compared", "contested", "callers_told_won", "losers_told", "losers_kept", "open_when_listed",
          "closed_when_listed", "winners_named", "lines_in_order", "lines_on_record", "records_in_order"]
NEEDED_OF = {"relay": ["orphaned"], "serve": ["orphaned"], "expiry": ["by_expiry"], "rule": ["by_rule"], "hold": ["withheld_held"]}
# The exit status of a run that has found nothing, and cannot say that there is nothing.
NO_VERDICT = 3
CHANCES = ["requests", "contested", "races", "losers_told", "losers_kept", "open_when_listed", "orphaned",
           "second_answers_documented", "excused_requests", "lines_on_record", "withheld_late_answer"]


class TooLong(Exception):
    pass


def give_up(*_):
    raise TooLong


def run_round(name, seed, binaries, folder, faults):
    """One round; returns the nemesis, a history of each session, and why the round was given up, if it was."""
    home = os.path.join(folder, "home")
    rng = random.Random(f"{seed}/round")
    has_disk = rng.random() < 0.35 and faults is None or {"full_disk", "slow_disk"} & set(faults or [])
    disk = Disk(home) if has_disk and name != "fleet" else None
    if faults is None:
        faults = [None] * rng.choice([0, 1, 1, 2, 3])
    workload = WORKLOADS[name](folder, seed, binaries)
    nemesis = FleetNemesis(workload) if name == "fleet" else Nemesis(workload, disk)
    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(ROUND_S_MAX)
    try:
        try:
            problem = drive(workload, nemesis, rng, faults)
            signal.alarm(0)
        except TooLong:
            problem = f"the round took longer than {ROUND_S_MAX} s"
        if problem:
            workload.clean_up()  # what still runs must not write while the logs are read
        for part in workload.parts:
            part.faults.put("read")
        histories = [load(part.logs, [part.session_folder], part.name) for part in workload.parts]
        if disk:
            shutil.copytree(home, os.path.join(folder, "home-at-the-end"), symlinks=True, ignore=ignore_sockets)
    finally:
        workload.clean_up()
        if disk:
            wait_for(disk.unmount, 5, 0.2)
    return nemesis, histories, problem


def drive(workload, nemesis, rng, faults):
    if not workload.start():
        return "the first start"
    approver = Approver(workload)
    approver.start()
    for fault in faults:
        put_load(workload, rng.randrange(8, 25))
        if not nemesis.strike_beside_load(fault, lambda: put_load(workload, 1)):
            return f"the recovery after {nemesis.done[-1]}: {workload.lacking}"
    put_load(workload, rng.randrange(8, 25))
    if not approver.finish():
        return "the callers, which wait for a reply"
    if not workload.recover():
        return "the last recovery"
    workload.ask_last()
    if workload.name == "hub" and rng.random() < 0.6 and not nemesis.strike(rng.choice(["kill_relay", "hub_restart"])):
        return "the last recovery of the hub"
    if not settle(workload):
        return f"the last barrier: {workload.lacking}"
    if not nemesis.stop("end"):
        return "the last stop"
    # It closes what has been left open. A relay leaves nothing open when it stops.
    if workload.name == "hub" or rng.random() < 0.3:
        workload.tool("requests", "--all", "--json", "--session", workload.session)
    workload.close()
    return None


def put_load(workload, steps):
    for _ in range(steps):
        workload.load_once()
        time.sleep(workload.rng.uniform(0.01, 0.1))


def settle(workload):
    """The faults are over: what waits is listed, and most of it is answered. False if something never passes."""
    since = time.monotonic()
    if not wait_for(lambda: workload.recover() and workload.barrier(), pause_s=0.2):
        return False
    if has_come(workload, lambda: lists_agree(workload)) is None:
        return False
    rows = workload.callers.list_pending("settle", since) or []
    left_open = workload.rng.choice([0, 0, 1, 2])
    for row in rows[left_open:]:
        workload.callers.respond(row, "final")
    for client in workload.open_clients():
        for rpc_id, request in list(client.requests.items()):
            if request["method"] == "item/tool/call" and rpc_id not in client.resolved:
                client.answer(rpc_id)
    wait_for(lambda: len(workload.callers.pending() or rows) <= left_open, 3, 0.1)
    return workload.barrier()


def lists_agree(workload):
    """Whether what codex-shim lists is what waits at the server, as far as that stays the same meanwhile."""
    before, rows = workload.waiting(), workload.callers.pending()
    keys, after = {key_of(row) for row in rows or []}, workload.waiting()
    return rows is not None and (before & after) - workload.never_listed <= keys <= before | after


def summary(number, name, seed, nemesis, report, problem):
    chances = " ".join(f"{each}={report.chances[each]}" for each in CHANCES)
    counts = Counter(nemesis.done)
    faults = ",".join(f"{fault}x{count}" if count > 1 else fault for fault, count in counts.items()) or "none"
    answered = ",".join(f"{each.removeprefix('by_')}:{report.chances[each]}" for each in sorted(report.chances)
                        if each.startswith("by_"))
    return (f"round {number} {name} seed={seed} faults={faults} answered={answered} {chances} violations={len(report.violations)}"
            + (f" GIVEN UP: {problem}" if problem else ""))


def lacks(total, mutants, done, struck, workloads, habits):
    """What the run had no chance to find: claims without a case, faults that found nothing to do, wrong histories without a place."""
    needed = NEEDED + [name for each in (*workloads, *habits) for name in NEEDED_OF.get(each, [])]
    return ([name for name in needed if not total[name]] + sorted(f"the fault {name}" for name in done - struck)
            + [f"the wrong history {each.__name__}" for each in MUTANTS if mutants is not None and not mutants[each.__name__]])


def print_violations(report, folder):
    for claim, text, evidence in report.violations[:10]:
        print(f"VIOLATION of claim {claim}: {text}")
        for each in evidence:
            print(f"    {each}")
    print(f"{len(report.violations)} violations; all logs are in {folder}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, help="so many rounds, however long they take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workload", choices=list(WORKLOADS), help="default: relay, serve or hub, by the seed")
    parser.add_argument("--faults", metavar="A,B", help="the faults of each round, in place of those that its seed draws")
    parser.add_argument("--habits", metavar="A,B", default="",
                        help="what every round has: expiry, hold, rule; no_flags: a server that does not say that it waits for an answer")
    parser.add_argument("--binary", required=True)
    parser.add_argument("--older", metavar="PATH", help="an older program: rounds begin with it, and the fault `upgrade` puts --binary in its "
                        "place; without it, `upgrade` goes on with the same program from another path")
    parser.add_argument("--keep", metavar="DIR", help="keep the folder of each round here, not only that of a failed one")
    parser.add_argument("--nats", metavar="PATH", default=shutil.which("nats-server"), help="nats-server, for the workload fleet")
    parser.add_argument("--mutants", action="store_true", help="also check wrong versions of each history, which must be found")
    options = parser.parse_args()
    Fleet.nats, Workload.habits = options.nats, set(filter(None, options.habits.split(",")))
    Workload.has_older = bool(options.older)
    if options.workload == "fleet" and not Fleet.nats:
        print("SKIPPED: the workload fleet, because --nats names no nats-server and PATH has none")
        return 0
    # Not below /tmp, where a model may write: a hub becomes no program that a model can change.
    runs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "target", "checker")
    os.makedirs(runs, exist_ok=True)
    base = os.path.abspath(options.keep or tempfile.mkdtemp(dir=runs))
    os.makedirs(base, exist_ok=True)
    # Under another name than its own, codex-shim stands in for codex.
    binaries = [os.path.join(base, f"program-{number}", "codex-shim") for number in (1, 2)]
    for path in binaries:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if path != binaries[0] and not options.older:
            os.link(binaries[0], path)
        else:
            shutil.copy(options.older if options.older and path == binaries[0] else options.binary, path)
    faults = options.faults and options.faults.split(",")
    if not faults:
        probe = Disk(os.path.join(base, "probe"))
        if not probe.can_be_slow:
            print("SKIPPED: " + ("slow disks, because no device can be throttled here" if probe.is_there else
                                 "full and slow disks, because no file system can be mounted here"))
        probe.unmount()
    deadline, number, more, total = time.monotonic() + options.seconds, 0, 0, Counter()
    mutants, done, struck, workloads = Counter() if options.mutants else None, set(), set(), set()
    while True:
        is_enough = number >= options.rounds if options.rounds else time.monotonic() >= deadline
        lacking = lacks(total, mutants, done, struck, workloads, Workload.habits) if is_enough else []
        if is_enough and (not lacking or more == ROUNDS_MORE_MAX):
            break
        if lacking:
            more += 1
            print(f"one more round, for {', '.join(lacking)}", flush=True)
        seed = options.seed + number
        name = options.workload or random.Random(seed).choice(["relay", "serve", "hub"])
        number += 1
        folder = os.path.join(base, f"r{seed}")
        os.makedirs(folder, mode=0o700)
        nemesis, histories, problem = run_round(name, seed, binaries, folder, faults)
        report = Report()
        for history in histories:
            report.add(check(history))
            if options.mutants:
                mutants.update(try_mutants(history, random.Random(seed)))
        total.update(report.chances)
        done, struck, workloads = done | set(nemesis.done), struck | set(nemesis.struck), workloads | {name}
        print(summary(number, name, seed, nemesis, report, problem), flush=True)
        if report.violations or problem:
            print_violations(report, folder)
            drawn = "".join(f" --{name} {value}" for name, value in (
                ("faults", options.faults), ("habits", options.habits), ("older", options.older)) if value)
            print(f"again: run.py --seed {seed} --rounds 1 --workload {name}{drawn} --binary {options.binary}")
            return 1 if report.violations else NO_VERDICT
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print("chances to fail: " + " ".join(f"{name}={count}" for name, count in sorted(total.items())))
    if mutants:
        print("wrong histories: " + " ".join(f"{name}={count}" for name, count in sorted(mutants.items())))
    if not options.keep:
        shutil.rmtree(base, ignore_errors=True)
    if any("missed" in name and count for name, count in (mutants or {}).items()):
        return 1
    if lacking:
        print(f"NO CHANCE: {', '.join(lacking)}; {number} rounds tell nothing about these")
        return NO_VERDICT
    return 0


if __name__ == "__main__":
    sys.exit(main())
