"""The patches with seeded bugs still apply to the source, and say what they are."""

import os
import shutil
import subprocess
import unittest

import bugs


class Patches(unittest.TestCase):
    def test_there_are_ten_or_more(self):
        self.assertGreaterEqual(len(bugs.all_bugs()), 10)

    def test_each_says_how_it_is_found(self):
        for bug in bugs.all_bugs():
            with self.subTest(bug.name):
                self.assertTrue(bug.what.endswith(".") and bug.claims and bug.runs)

    @unittest.skipUnless(shutil.which("git"), "there is no git")
    def test_each_applies(self):
        for bug in bugs.all_bugs():
            with self.subTest(bug.name):
                done = subprocess.run(["git", "apply", "--check", os.path.abspath(bug.path)], cwd=bugs.ROOT,
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, f"mend {bug.path}: {done.stderr}")
