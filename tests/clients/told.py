"""Prints the messages that a client saw."""

import json
import threading

_one_at_a_time = threading.Lock()


def tell(stream, seen):
    with _one_at_a_time:
        print(json.dumps([stream, seen], sort_keys=True), flush=True)
