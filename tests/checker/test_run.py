"""What a run must have had a chance to find, and waits that no busy machine decides."""

import unittest
from collections import Counter
from unittest import mock

import run
from checker import workloads
from checker.mutants import MUTANTS


class Chances(unittest.TestCase):
    def lacks(self, total=(), mutants=None, done=(), struck=(), workload="hub", habits=()):
        return run.lacks(Counter([*run.NEEDED, *total]), mutants, set(done), set(struck), {workload}, habits)

    def test_run_without_any_request_says_nothing(self):
        self.assertEqual(run.lacks(Counter(), None, set(), set(), {"hub"}, set()), run.NEEDED)
        self.assertEqual(self.lacks(), [])

    def test_what_was_asked_for_must_have_happened(self):
        self.assertEqual(self.lacks(workload="relay"), ["orphaned"])
        self.assertEqual(self.lacks(habits=["expiry", "no_flags"]), ["by_expiry"])
        self.assertEqual(self.lacks(["by_expiry"], habits=["expiry"]), [])
        self.assertEqual(self.lacks(done=["upgrade", "kill_relay"], struck=["upgrade"]), ["the fault kill_relay"])

    def test_each_wrong_history_needs_a_place(self):
        tried = Counter(each.__name__ for each in MUTANTS[1:])
        self.assertEqual(self.lacks(mutants=tried), [f"the wrong history {MUTANTS[0].__name__}"])


class FakeWorkload:
    """Works for its clients, or does not get to it; every look at the clock takes an hour."""

    def __init__(self, is_working):
        self.is_working, self.steps = is_working, 0

    def works(self):
        self.steps += 1
        return self.is_working


class Waits(unittest.TestCase):
    def has_come(self, workload, condition):
        hours = iter(range(0, 10**9, 3600))
        with mock.patch.object(workloads.time, "monotonic", lambda: next(hours)), mock.patch.object(workloads.time, "sleep"):
            return workloads.has_come(workload, condition)

    def test_what_comes_late_has_come(self):
        workload = FakeWorkload(True)
        self.assertIs(self.has_come(workload, lambda: workload.steps == workloads.STEPS_ENOUGH - 1), True)

    def test_time_alone_decides_nothing(self):
        self.assertIsNone(self.has_come(FakeWorkload(False), lambda: False))

    def test_what_does_not_come_after_many_steps_does_not_come(self):
        workload = FakeWorkload(True)
        self.assertIs(self.has_come(workload, lambda: False), False)
        self.assertGreaterEqual(workload.steps, workloads.STEPS_ENOUGH)


if __name__ == "__main__":
    unittest.main()
