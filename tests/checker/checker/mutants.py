"""Wrong versions of a real history, to show that the check of a run could have failed.

Each function changes a copy of the history in one place and names the claim that this breaks, or returns None if the
history has no such place.
"""

import copy
import json
from collections import Counter

from checker.claims import ANSWERERS, Facts, check
from checker.history import Record


def plain_asks(history):
    """Requests with one row and one answer at the server, far from every fault."""
    facts = Facts(history)
    for ask in facts.asks.values():
        rows = facts.rows[ask.key]
        if len(rows) == 1 and len(ask.got) == 1 and not ask.again and rows[0]["resolution_source"] in ANSWERERS:
            at = ask.got[0]["t"]
            is_calm = not facts.is_excused(ask) and not facts.is_disturbed(ask.at, at) and ask.server_end_at > facts.due(at)
            if is_calm and ask.withdrawn_at is None and rows[0]["resolved_payload_json"] != '{"omitted":"secret"}':
                yield ask, rows[0]


def one(rng, found):
    found = list(found)
    return rng.choice(found) if found else (None, None)


def answer_twice(history, rng):
    ask, _ = one(rng, plain_asks(history))
    if ask:
        for events in history.servers:
            events += [dict(each) for each in events if each["ev"] == "answer" and each["key"] == ask.key]
        return 1


def change_stored_answer(history, rng):
    ask, row = one(rng, plain_asks(history))
    if ask:
        row["resolved_payload_json"] = '{"decision":"changed"}'
        return 2


def forget_winner(history, rng):
    ask, row = one(rng, plain_asks(history))
    if ask:
        history.answers = [each for each in history.answers if each["request_id"] != row["request_id"] or not each["won"]]
        return 2


def forget_loser(history, rng):
    names = {row["request_id"] for _, row in plain_asks(history)}
    lost = [each for each in history.answers if each["request_id"] in names and not each["won"]]
    if lost:
        history.answers.remove(rng.choice(lost))
        return 3


def unlist(history, rng):
    """Only a request that was open when listed: one that the last calls answered."""
    facts, listed = Facts(history), [each for each in history.calls if each["ev"] == "listed" and each["keys"]]
    for key in listed[-1]["keys"] if listed else []:
        ask = facts.asks[key]
        if not facts.is_excused(ask) and ask.at < listed[-1]["since"] and not facts.is_policy(key):
            listed[-1]["keys"].remove(key)
            return 4


def forget_giver(history, rng):
    ask, _ = one(rng, plain_asks(history))
    if ask:
        payload = ask.got[0]["payload"]
        history.calls = [each for each in history.calls if each.get("key") != ask.key or each["expected"] != payload]
        for events in history.clients:
            events[:] = [each for each in events if each["ev"] != "send" or json.dumps(payload)[1:-1].replace(" ", "")
                         not in each["line"].replace(" ", "")]
        return 5


def blame_another(history, rng):
    ask, row = one(rng, plain_asks(history))
    if ask:
        row["resolved_by"] = "somebody"
        return 6


def received_lines(history, rng):
    """The received lines of one client, in the middle of its log."""
    clients = [events for events in history.clients if sum(each["ev"] == "recv" for each in events) > 20]
    if not clients:
        return None, []
    events = rng.choice(clients)
    return events, [each for each in events if each["ev"] == "recv"][5:-5]


def swap_lines(history, rng):
    _, lines = received_lines(history, rng)
    if lines:
        first = rng.randrange(len(lines) - 1)
        if lines[first]["line"] != lines[first + 1]["line"]:
            lines[first]["line"], lines[first + 1]["line"] = lines[first + 1]["line"], lines[first]["line"]
            return 7


def lose_line(history, rng):
    events, lines = received_lines(history, rng)
    if lines:
        events.remove(rng.choice(lines))
        return 7


def forget_record(history, rng):
    _, lines = received_lines(history, rng)
    gaps = any(record.gap_lines for record in history.records)
    if lines and not gaps and not any(each.get("kind") == "restore" for each in history.faults):
        line = rng.choice(lines)["line"]
        history.records = [record for record in history.records if record.line != line]
        return 8


def invent_record(history, rng):
    history.records.append(Record("x", sender="server", to="client", line='{"nobody":"sent this"}'))
    return 8


def leave_pending(history, rng):
    ask, row = one(rng, plain_asks(history))
    if ask and any(each["ev"] == "closed" for each in history.faults):
        row.update(status="pending", resolved_at=None, resolution_source=None, resolved_payload_json=None)
        return 9


MUTANTS = [answer_twice, change_stored_answer, forget_winner, forget_loser, unlist, forget_giver, blame_another, swap_lines,
           lose_line, forget_record, invent_record, leave_pending]


def try_mutants(history, rng):
    """Counts `NAME` for each mutant that was tried, and `NAME missed` for each that the check did not find."""
    counts = Counter()
    for mutant in MUTANTS:
        wrong = copy.deepcopy(history)
        claim = mutant(wrong, rng)
        if claim:
            counts[mutant.__name__] += 1
            counts[f"{mutant.__name__} missed"] += claim not in {each[0] for each in check(wrong).violations}
    return counts
