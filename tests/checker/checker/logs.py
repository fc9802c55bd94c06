"""Logs of the parties: JSON lines, each appended with one write, so that a killed party loses no earlier entry.

`t` is the monotonic clock of the machine, which all processes share, and `wall` the time of day. Lines are text in which bytes that are not
UTF-8 are surrogates, so every line has exactly one form in all logs.
"""

import json
import os
import threading
import time

# How long a part may take that a busy machine keeps from working. Nothing is concluded from how long it took.
PATIENCE_S = 120


def text_of(line):
    return line.decode("utf-8", "surrogateescape")


def bytes_of(text):
    return text.encode("utf-8", "surrogateescape")


class Log:
    def __init__(self, path):
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.lock = threading.RLock()  # a signal may come amid an entry

    def put(self, event, **members):
        with self.lock:
            entry = {"t": time.monotonic(), "wall": time.time(), "ev": event, **members}
            os.write(self.descriptor, json.dumps(entry).encode() + b"\n")


def read_log(path):
    with open(path, "rb") as file:
        return [json.loads(line) for line in file.read().split(b"\n")[:-1]]
