"""Wrong versions of a real history, to show that the check of a run could have failed.

Each function changes a copy of the history in one place and names the claim that this breaks, or returns None if the
history has no such place.
"""

import copy
import json
from collections import Counter

from checker.claims import check
from checker.facts import ANSWERERS, ENVELOPE, Facts, agrees, is_answer, is_named, parse, payload_of, wall_of
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
    facts = Facts(history)
    names = {row["request_id"]: ask for ask, row in plain_asks(history)}
    is_due = lambda ask, answer, given: (
        is_named(answer, given) and agrees(ask, payload_of(answer), given.payload) and facts.is_kept(ask, given))
    lost = [each for each in history.answers if each["request_id"] in names and not each["won"]
            and any(is_due(names[each["request_id"]], each, given) for given in facts.given[names[each["request_id"]].key])]
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
        # A request may have waited for its row.
        pair = lines[first : first + 2]
        if not any('"id"' in each["line"] for each in pair) and pair[0]["line"] != pair[1]["line"]:
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


def policy_asks(history):
    """As `plain_asks`, of those that a rule or an expiry answered."""
    facts = Facts(history)
    for ask in facts.asks.values():
        rows = facts.rows[ask.key]
        if len(rows) == 1 and len(ask.got) == 1 and rows[0]["resolution_source"] == "policy" and not facts.is_excused(ask):
            begin, end = facts.clock.range_of(wall_of(rows[0]["resolved_at"]))
            if not facts.is_disturbed(begin, end) and ask.server_end_at > facts.due(end) and not facts.given[ask.key]:
                yield ask, rows[0]


def turn_policy_answer(history, rng):
    """All agree, and what was to be declined is accepted."""
    ask, row = one(rng, policy_asks(history))
    if ask:
        accept = {"decision": "accept"}
        row["resolved_payload_json"] = json.dumps(accept)
        for answer in history.answers:
            if answer["request_id"] == row["request_id"]:
                answer["payload_json"] = json.dumps(accept)
        ask.got[0]["payload"] = accept
        return 5


def keep_policy_answer(history, rng):
    """It is stored and never sent."""
    ask, _ = one(rng, policy_asks(history))
    if ask:
        for events in history.servers:
            events[:] = [each for each in events if each["ev"] != "answer" or each["key"] != ask.key]
        return 2


def rename_policy(history, rng):
    ask, row = one(rng, policy_asks(history))
    if ask:
        row["resolved_by"] = "rule:other"
        return 6


def changed_lines(history):
    """What the servers got with an envelope that no client had sent, each with the events of its server."""
    for events in history.servers:
        yield from ((events, each) for each in events if each["ev"] == "recv" and ENVELOPE in each["line"]
                    and not str((parse(each["line"]) or {}).get("id")).startswith("codex-shim:"))


def repeat_message(history, rng):
    events, event = one(rng, changed_lines(history))
    if event:
        events.append(dict(event))
        return 7


def swap_messages(history, rng):
    """The same lines, and one with an envelope changes places with the one behind it."""
    found = []
    for events, event in changed_lines(history):
        lines = [each for each in events if each["ev"] == "recv" and each["conn"] == event["conn"]]
        behind = lines[lines.index(event) + 1 :][:1]
        found += [(event, each) for each in behind if not is_answer(parse(each["line"])) and '"codex-shim:' not in each["line"]]
    event, behind = one(rng, [each for each in found if client_of(history, each[0]) == client_of(history, each[1]) is not None])
    if event:
        event["line"], behind["line"] = behind["line"], event["line"]
        return 7


def client_of(history, event):
    """Who sent the call in this line."""
    rpc_id = (parse(event["line"]) or {}).get("id")
    return next((events[0]["name"] for events in history.clients for each in events
                 if each["ev"] == "send" and rpc_id is not None and f'"id":{json.dumps(rpc_id)}' in each["line"]), None)


def forge_message(history, rng):
    events, event = one(rng, changed_lines(history))
    if event:
        message = parse(event["line"])
        events.append({**event, "line": json.dumps({**message, "id": "nobody-1"})})
        return 7


def lose_journal(history, rng):
    history.records = []
    return 8


def forget_withheld(history, rng):
    """A client's late answer reached nobody, and is neither on record nor in the ledger."""
    facts, received = Facts(history), {each["line"] for events in history.servers for each in events if each["ev"] == "recv"}
    found = [(key, given) for key, all_given in facts.given.items() if key in facts.asks and facts.asks[key].kind not in ("secret", "tool")
             and not facts.is_excused(facts.asks[key]) and facts.rows[key]
             for given in all_given if given.line and given.line not in received and facts.has_read(given)]
    key, given = one(rng, found)
    if given:
        history.records = [each for each in history.records if each.line != given.line]
        names = {row["request_id"] for row in facts.rows[key]}
        history.answers = [each for each in history.answers if each["request_id"] not in names or each["won"]]
        return 8


def invent_own_record(history, rng):
    """An answer is on record that codex-shim did not send."""
    own = [each for each in history.records if each.sender == "shim" and each.line and each.to == "server"]
    facts = Facts(history)
    calm = [each for each in own if not facts.is_disturbed(*facts.clock.range_of(each.at / 1e6))
            and min((ask.server_end_at for ask in facts.asks.values()), default=0) > facts.due(facts.clock.range_of(each.at / 1e6)[1])]
    if calm and len(history.servers) == 1 and not any(each["ev"] == "end" for events in history.clients for each in events[:-1]):
        record = rng.choice(calm)
        history.records.insert(history.records.index(record) + 1, record)
        return 8


def change_request(history, rng):
    """The ledger shows another request than the server made."""
    ask, row = one(rng, plain_asks(history))
    if ask:
        row["request_payload_json"] = json.dumps({**json.loads(row["request_payload_json"]), "command": "true"})
        return 6


def leave_secret(history, rng):
    facts = Facts(history)
    given = [given for ask in facts.asks.values() if ask.kind == "secret" for given in facts.given[ask.key] if given.payload.get("answers")]
    if given:
        history.files["history.db"] = json.dumps(rng.choice(given).payload).encode()
        return 8


MUTANTS = [turn_policy_answer, keep_policy_answer, rename_policy, repeat_message, swap_messages, forge_message, lose_journal,
           forget_withheld, invent_own_record, change_request, leave_secret, answer_twice, change_stored_answer, forget_winner,
           forget_loser, unlist, forget_giver, blame_another, swap_lines, lose_line, forget_record, invent_record,
           leave_pending]


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
