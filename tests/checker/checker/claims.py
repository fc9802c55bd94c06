"""The check: nine claims about a history. Pure: it reads a `History` and returns a `Report`.

1 a request is answered at most once to the server        2 the first stored answer is the one that the server got
3 every loser gets the answer that holds                  4 nothing pending is lost
5 every answer has a giver                                6 provenance names who answered
7 each direction has the order of reading                 8 the journal has every line, unaltered
9 after a crash the documented states apply

No verdict depends on how fast anything is. What must have happened by a certain time is told by barriers: at a `barrier` every client has
had an answer to a call that it sent after `since`, so all lines from before have passed, and the ledger has answered after that. What no
barrier followed before the next fault may have been in progress, and nothing is demanded of it.
"""

import bisect
import datetime
import functools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from checker.callers import key_of
from checker.logs import bytes_of

SECRET = {"omitted": "secret"}
KILLS = ("kill_relay", "kill_server", "drop_client", "stop_session", "hub_restart", "end")
ANSWERERS = ("client", "api", "tui", "web", "cli")
# The ledger has milliseconds, of a clock that is set meanwhile.
CLOCK_S = 0.3
# How early a record may be late: the ledger has so long to store a request or an answer.
HOLD_S = 0.25
ENVELOPE = "\\u001eCODEX_META "
# The rule and the expiry of the workloads, what they answer, and the kinds of requests that each answers.
DECLINE = {"decision": "decline"}
RULE, EXPIRY, EXPIRY_S = "rule:forbidden", "expiry", 2
EXPIRING = ("command", "file", "ruled")
STATES = ("pending", "resolved", "expired", "orphaned")


@dataclass
class Ask:
    """A request of a server, and all that happened to it there."""

    key: str
    kind: str
    token: str
    rpc_id: int
    at: float
    server_end_at: float
    again: list = field(default_factory=list)
    got: list = field(default_factory=list)
    withdrawn_at: float = None
    params: dict = None


@dataclass
class Given:
    """An answer that somebody gave: a client (`via` "client"), or an API caller."""

    via: str
    who: str
    begun_at: float
    ended_at: float
    payload: object
    line: str = None
    call: dict = None


@dataclass
class Report:
    violations: list = field(default_factory=list)
    chances: Counter = field(default_factory=Counter)

    def violate(self, claim, text, *evidence):
        self.violations.append((claim, text, [shorten(each) for each in evidence]))

    def add(self, other):
        self.violations += other.violations
        self.chances.update(other.chances)


def shorten(value):
    text = value if isinstance(value, str) else json.dumps(value, default=vars)
    return text if len(text) <= 1000 else f"{text[:1000]}… ({len(text)} characters)"


@functools.lru_cache(1 << 15)
def parse(line):
    """The message in a line, or None. Nobody changes it."""
    message = parsed(line)
    return message if isinstance(message, dict) else None


def is_answer(message):
    return message is not None and "id" in message and "method" not in message


def parsed(value):
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def agrees(ask, stored, payload):
    """Whether this answer is stored; that to a secret question never is."""
    stored, payload = parsed(stored), parsed(payload)
    return stored == payload or stored == SECRET and ask.kind == "secret"


def member(row, *names):
    """The first of these columns that the row has."""
    return next((row[name] for name in names if name in row), None)


def payload_of(answer):
    return member(answer, "payload_json", "payload")


def names(source, by, given):
    """Whether a source and its name in the ledger are the giver: a client by its name, a caller by its process."""
    if source != given.via:
        return False
    if given.via == "client" or not given.who.isdigit():
        return by == given.who
    return re.search(rf"\bpid {given.who}(?!\d)", str(by))


def is_named(answer, given):
    return names(member(answer, "source", "resolution_source"), member(answer, "by", "resolved_by"), given)


class Facts:
    """The history, joined by request."""

    def __init__(self, history):
        self.history = history
        self.faults = with_ends(history.faults)
        self.barriers = sorted((each["since"], each["t"]) for each in history.faults if each["ev"] == "barrier")
        self.locks = [(each["begun_at"], each["until"]) for each in self.faults if each["kind"] == "lock_ledger"]
        self.is_closed = any(each["ev"] == "closed" for each in history.faults)
        self.has_expiry = any(each["ev"] == "expiry" for each in history.faults)
        self.has_hold = any(each["ev"] == "hold" for each in history.faults)
        self.clock = Clock(history)
        self.asks, self.server_names, self.given, self.stray_answers = {}, {}, defaultdict(list), []
        self.client_ends = {}
        self.rows, self.answers, self.seen_at = defaultdict(list), defaultdict(list), {}
        for events in history.servers:
            self.read_server(events)
        for events in history.clients:
            self.read_client(events)
        for call in (each for each in history.calls if each["ev"] == "call"):
            self.given[call["key"]].append(
                Given(call["via"], call["who"], call["begun_at"], call["t"], call["expected"], None, call))
        keys = {row["request_id"]: key_of(row) for row in history.rows}
        for row in history.rows:
            self.rows[keys[row["request_id"]]].append(row)
        for answer in history.answers:
            self.answers[keys.get(answer["request_id"])].append(answer)
        # Once something has waited in vain, nothing waits until the ledger stores again.
        self.has_waited = any(each["kind"] in ("lock_ledger", "slow_disk", "full_disk") for each in self.faults) or any(
            wait >= HOLD_S for ask in self.asks.values() for wait in self.waits(ask))
        self.lossy = [(self.barrier_before(each["begun_at"]), each["over_at"], each["kind"])
                      for each in self.faults if each["kind"] in ("full_disk", "restore")]
        self.client_records = {record.line for record in history.records if record.sender == "client"}
        self.givers_of = {given.line: key for key, all_given in self.given.items() for given in all_given if given.line}

    def read_server(self, events):
        pid, begun_at = events[0]["pid"], events[0]["t"]
        ends = [each["t"] for each in events if each["ev"] == "end"]
        ends += [each["begun_at"] for each in self.faults if each["begun_at"] > begun_at and self.ends_server(each, pid)]
        for event in events:
            if event["ev"] == "ask" and not event["again"]:
                self.asks[event["key"]] = Ask(event["key"], event["kind"], events[0]["token"], event["rpc_id"], event["t"],
                                              min(ends, default=float("inf")))
            elif event["ev"] == "ask":
                self.asks[event["key"]].again.append(event)
            elif event["ev"] == "answer" and event["key"]:
                self.asks[event["key"]].got.append(event)
            elif event["ev"] == "answer":
                self.stray_answers.append(event)
            elif event["ev"] == "withdraw":
                self.asks[event["key"]].withdrawn_at = event["t"]
            elif event["ev"] == "send" and '"id"' in event["line"]:
                self.read_request(events[0]["token"], parse(event["line"]))
            elif event["ev"] == "name":
                self.server_names[event["name"]] = (events[0]["token"], event["conn"])

    def read_request(self, token, message):
        ask = self.asks.get(f"K{token}-{message.get('id')}") if message and "method" in message else None
        if ask:
            ask.params = message.get("params")

    def read_client(self, events):
        name, asked = events[0]["name"], {}
        self.client_ends[name] = next((each["t"] for each in events if each["ev"] in ("end", "send_failed")), float("inf"))
        for event in events:
            message = parse(event.get("line"))
            if event["ev"] == "recv" and message and "method" in message and "id" in message:
                key = asked[json.dumps(message["id"])] = key_of({"request_payload": message.get("params")})
                self.seen_at[key] = min(event["t"], self.seen_at.get(key, event["t"]))
            elif event["ev"] == "send" and is_answer(message):
                payload = message["result"] if "result" in message else {"error": message.get("error")}
                self.given[asked.get(json.dumps(message["id"]))].append(
                    Given("client", name, event["t"], event["t"], payload, event["line"]))

    def ends_server(self, fault, pid):
        """Whether the server may have ended since this fault, whenever it says so."""
        kind = fault["kind"]
        if kind == "kill_server":
            return fault.get("pid") == pid
        if kind in ("stop_session", "end"):
            return True
        is_relay = self.history.workload != "hub"
        return is_relay and (kind == "kill_relay" or kind == "drop_client" and self.history.workload != "serve")

    def barrier_before(self, at):
        """The time before which all had passed when that time came."""
        return max((since for since, until in self.barriers if until <= at), default=0.0)

    def due(self, at):
        """When all that was sent at that time had passed; never, if nothing shows that it had."""
        return min((until for since, until in self.barriers if since >= at), default=float("inf"))

    def is_disturbed(self, begin, end):
        """Whether what happened in that time, and had to have passed afterwards, may be lost or unfinished by a crash."""
        due = self.due(end)
        return due == float("inf") or any(
            begin <= each["over_at"] and each["begun_at"] <= due for each in self.faults if each["kind"] in KILLS)

    def is_settled(self, ask, at):
        """Whether the server still waits once all that was sent at that time has passed."""
        return ask.withdrawn_at is None and ask.server_end_at > self.due(at) and not self.is_disturbed(at, at)

    def is_excused(self, ask):
        """Whether its rows may be missing: it was asked or answered while the disk was full or the folder was lost."""
        times = [ask.at] + [each["t"] for each in ask.got] + [each.begun_at for each in self.given[ask.key]]
        return any(begin <= each <= end for begin, end, _ in self.lossy for each in times)

    def policies_of(self, ask):
        """The names of those that may answer this request without anybody."""
        return [RULE] * (ask.kind == "ruled") + [EXPIRY] * (self.has_expiry and ask.kind in EXPIRING)

    def is_policy(self, key):
        """Whether a rule or an expiry has answered it, as far as the ledger can still tell."""
        ask = self.asks[key]
        is_row_lost = bool(self.policies_of(ask)) and not self.rows[key] and self.is_excused(ask)
        return is_row_lost or any(
            row["resolution_source"] == "policy" and row["status"] != "orphaned" for row in self.rows[key])

    def is_policy_before(self, key, at):
        """As `is_policy`, unless an expiry surely came later than that."""
        return self.is_policy(key) and not any(
            row["resolved_by"] == EXPIRY and self.clock.range_of(wall_of(row["resolved_at"]))[0] > at for row in self.rows[key])

    def has_read(self, given):
        """Whether the answer of a client has surely been read, on record or not."""
        return self.client_ends.get(given.who, float("inf")) > self.due(given.ended_at) and not self.is_disturbed(
            given.begun_at, given.ended_at)

    def is_late(self, key):
        """Whether the ledger says that something about a request was passed on before it was stored, because that took too long."""
        return any(member(row, "late") for row in self.rows[key])

    def answers_late(self, line):
        """Whether it is an answer that waited in vain for that of a caller to be stored, and was then passed on."""
        return self.is_late(self.givers_of.get(line))

    def is_withheld(self, line):
        """Whether it is a request that clients need not see. They do if its row cannot be stored in time, behind other lines."""
        message = parse(line) or {}
        ask = self.asks.get(key_of({"request_payload": message.get("params")})) if "id" in message else None
        return bool(ask) and ask.kind != "tool" and (self.is_for_nobody(ask) or self.is_policy(ask.key))

    def is_for_nobody(self, ask):
        """Whether no client sees it as long as the ledger stores in time. Of what is for no human nothing is held."""
        return ask.kind == "ruled" or self.has_hold and ask.kind not in ("tool", "unknown")

    def waits(self, ask):
        """How long a client waited for the request, and the server for each answer."""
        yield self.seen_at.get(ask.key, ask.at) - ask.at
        yield from (got["t"] - given.begun_at for got in ask.got for given in self.given[ask.key] if given.payload == got["payload"])


class Clock:
    """Times of the ledger and the journal on the clock of the logs. The time of day may be set meanwhile; then a time has a range."""

    def __init__(self, history):
        logs = [*history.servers, *history.clients, history.calls, history.faults]
        offsets = [event["wall"] - event["t"] for events in logs for event in events if "wall" in event]
        self.least, self.most = min(offsets, default=0), max(offsets, default=0)
        times = [event["t"] for events in logs for event in events]
        self.first, self.last = min(times, default=0), max(times, default=0)

    def range_of(self, wall):
        """From when to when a time of day may have been; nothing is known of no time."""
        return (float("-inf"), float("inf")) if wall is None else (wall - self.most - CLOCK_S, wall - self.least + CLOCK_S)


def wall_of(value):
    """A time in the ledger, in seconds."""
    if isinstance(value, str):
        return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
    return value and value / (1e6 if value > 1e14 else 1e3)


def with_ends(events):
    """The faults, each with the time at which the parts were back and had answered."""
    faults, unfinished = [], []
    for event in events:
        if event["ev"] == "fault":
            unfinished.append({**event, "over_at": float("inf")})
            faults.append(unfinished[-1])
        elif event["ev"] == "over":
            for fault in unfinished:
                fault["over_at"] = event["t"]
            unfinished = []
    return faults


def check(history):
    facts, report = Facts(history), Report()
    for flaw in history.flaws:
        report.violate(8, "a record of the journal cannot be read", flaw)
    for ask in facts.asks.values():
        report.chances["requests"] += 1
        report.chances["answers_given"] += len(facts.given[ask.key])
        report.chances["contested"] += len(facts.given[ask.key]) > 1
        report.chances["races"] += is_race(facts.given[ask.key])
        check_answers_at_server(facts, ask, report)
        check_repetition(facts, ask, report)
        if facts.is_excused(ask):
            report.chances["excused_requests"] += 1
        elif ask.kind != "tool":
            check_rows_exist(facts, ask, report)
            check_winner(facts, ask, report)
            check_real_time(facts, ask, report)
            check_losers(facts, ask, report)
            check_storing(facts, ask, report)
            check_showing(facts, ask, report)
            for row in facts.rows[ask.key]:
                check_content(ask, row, report)
                check_state(facts, ask, row, report)
                check_names(facts, ask, row, report)
    for row in history.rows:
        if key_of(row) not in facts.asks:
            report.violate(5, "the ledger has a request that no server made", row)
    for key in facts.seen_at:
        if key not in facts.asks:
            report.violate(5, f"a client got the request {key}, which no server made")
    for answer in facts.stray_answers:
        report.violate(5, "a server got an answer to a request that it never made", answer)
    for listing in (each for each in history.calls if each["ev"] == "listed"):
        check_listing(facts, listing, report)
    check_secrets(facts, report)
    check_directions(facts, report)
    check_journal(facts, report)
    return report


def is_race(given):
    """Whether an answer was given before the giver could know of an earlier one."""
    ordered = sorted(given, key=lambda each: each.begun_at)
    return any(b.begun_at <= max(a.ended_at, a.begun_at + 0.005) for a, b in zip(ordered, ordered[1:]))


# Claims 1 and 5: what the server got.


def check_answers_at_server(facts, ask, report):
    rows = facts.rows[ask.key]
    report.chances["answered_at_server"] += bool(ask.got)
    if len(ask.got) > 1:
        is_replaced = any(row["error_code"] == "answer_replaced" for row in rows)
        if len(ask.got) > 1 + len(ask.again) or not (len(rows) > 1 or is_replaced or ask.kind == "tool"):
            report.violate(1, f"{ask.key} was answered {len(ask.got)} times at the server", ask.got, rows, ask.again)
        report.chances["second_answers_documented"] += 1
    for got in ask.got:
        if any(given.payload == got["payload"] and given.begun_at <= got["t"] for given in facts.given[ask.key]):
            report.chances["answers_traced"] += 1
        elif facts.is_policy(ask.key):
            report.chances["policy_answers"] += 1
            check_policy_answer(facts, ask, got, report)
        elif ask.kind == "tool" and facts.history.workload == "serve" and "no client is attached" in json.dumps(got["payload"]):
            report.chances["tool_refusals"] += 1
        else:
            report.violate(5, f"the server got an answer to {ask.key} that nobody gave", got, rows)


def check_policy_answer(facts, ask, got, report):
    """Rules and expiries decline, and nothing expires before its time."""
    rows = facts.rows[ask.key]
    if not facts.policies_of(ask) or got["payload"] != DECLINE:
        report.violate(5, f"a rule or an expiry gave an answer to {ask.key} that nobody has set", got, rows)
    is_expiry = any(row["resolved_by"] == EXPIRY and row["resolution_source"] == "policy" for row in rows)
    if is_expiry and got["t"] < ask.at + EXPIRY_S:
        report.violate(5, f"{ask.key} expired before its time", got, rows)


def check_repetition(facts, ask, report):
    """A second row, and an answer that is replaced, excuse much below, and so each needs what the documents name as its cause."""
    rows = facts.rows[ask.key]
    if len(rows) > 1 + len(ask.again):
        report.violate(1, f"{ask.key} was asked {1 + len(ask.again)} times and has {len(rows)} rows", rows, ask.again)
    for row in rows:
        if row["error_code"] == "answer_replaced" and (facts.history.workload != "hub" or not facts.is_disturbed(ask.at, ask.at)):
            report.violate(1, f"the answer to {ask.key} was replaced, and no hub was killed", row)


# Claim 2: the ledger and the server agree.


def check_rows_exist(facts, ask, report):
    """A request is stored before a client sees it; only a hub that has just begun passes it on before that."""
    is_new_hub = facts.history.workload == "hub" and facts.is_disturbed(ask.at, ask.at)
    if ask.key in facts.seen_at and not facts.rows[ask.key] and not is_new_hub:
        report.violate(4, f"a client got {ask.key}, and it has no row", vars(ask))


def check_winner(facts, ask, report):
    rows, answers = facts.rows[ask.key], facts.answers[ask.key]
    for got in ask.got if rows else []:
        report.chances["answers_compared"] += 1
        is_late = len(rows) > 1 or (ask.withdrawn_at or got["t"]) < got["t"]
        is_kept = any(agrees(ask, payload_of(each), got["payload"]) for each in answers)
        if not any(agrees(ask, row["resolved_payload_json"], got["payload"]) for row in rows) and not (is_kept and is_late):
            report.violate(2, f"the server got another answer to {ask.key} than the ledger has", got, rows, answers)
    for row in rows:
        mine = [each for each in answers if each["request_id"] == row["request_id"]]
        won = [each for each in mine if each["won"]]
        if row["status"] == "resolved" and row["resolution_source"] != "server":
            report.chances["winners_stored_behind_a_loser"] += bool(won) and mine.index(won[0]) > 0
            if len(won) != 1:
                report.violate(2, f"{row['request_id']} has {len(won)} winners", row, mine)
            elif not agrees(ask, row["resolved_payload_json"], payload_of(won[0])):
                report.violate(2, f"the winner of {row['request_id']} is not its answer", row, mine)
            elif not is_first(won[0], mine, row) and row["error_code"] != "answer_replaced" and not facts.is_late(ask.key) \
                    and not is_from_earlier_hub(facts, ask):
                report.violate(2, f"the winner of {row['request_id']} is not the first answer", row, mine)
        elif won and not (row["resolution_source"] == "policy" and facts.policies_of(ask)):
            report.violate(2, f"{row['request_id']} has a winner and was not answered", row, mine)


def is_first(winner, answers, row):
    """Whether no answer was before the winner. An expiry wins when it comes, and its answer is stored as it is written."""
    at = row["expires_at"] if row["resolved_by"] == EXPIRY else winner["at"]
    return all(each["at"] >= at for each in answers)


def is_from_earlier_hub(facts, ask):
    """Whether it waited while a hub took over, which passes answers on before it has read the ledger."""
    return facts.history.workload == "hub" and facts.is_disturbed(ask.at, max([each["t"] for each in ask.got] or [ask.at]))


def check_real_time(facts, ask, report):
    """No answer wins over one that was complete before it began."""
    winners = [given for given in facts.given[ask.key]
               if ask.got and given.payload == ask.got[0]["payload"] and given.begun_at <= ask.got[0]["t"]]
    if len(winners) != 1 or len(facts.rows[ask.key]) > 1 or facts.is_policy(ask.key):
        return
    for given in facts.given[ask.key]:
        if given.call and given.call.get("status") == 200 and given.ended_at < winners[0].begun_at:
            report.violate(2, f"a later answer to {ask.key} won", given.call, ask.got[0])
        report.chances["ordered_pairs"] += given.ended_at < winners[0].begun_at or winners[0].ended_at < given.begun_at


# Claim 3: losers.


def check_losers(facts, ask, report):
    rows, answers = facts.rows[ask.key], facts.answers[ask.key]
    unused = [each for each in answers if not each["won"]]
    # An answer waits while another one is stored, and is kept as lost after that.
    won_at = max([facts.clock.range_of(wall_of(row["resolved_at"]))[1] for row in rows if row["resolved_at"]], default=0)
    lost_at = lambda given: max(given.ended_at, won_at)
    for given in facts.given[ask.key]:
        got_it = any(got["payload"] == given.payload for got in ask.got)
        if given.call:
            is_loser = check_reply(facts, ask, given, got_it, report)
        else:
            is_loser = not got_it and rows and (given.line in facts.client_records or facts.has_read(given))
        if not is_loser:
            continue
        # The answer of a caller that lost is kept as it came, before it is made an answer to the server.
        forms = [given.payload] + ([given.call["body"]] if given.call else [])
        kept = next((each for each in unused if is_named(each, given)
                     and any(agrees(ask, payload_of(each), form) for form in forms)), None)
        if kept is not None:
            unused.remove(kept)
            report.chances["losers_kept"] += 1
        elif given.call is None and (facts.is_disturbed(given.begun_at, lost_at(given)) or ask.server_end_at < facts.due(lost_at(given))):
            report.chances["losers_unkept_in_crash"] += 1
        elif not any(agrees(ask, row["resolved_payload_json"], given.payload) for row in rows):
            report.violate(3, f"a lost answer to {ask.key} was not kept", given, rows, answers)


def check_reply(facts, ask, given, got_it, report):
    """Whether the reply to a call says the truth; returns whether it says that another answer had won."""
    call, rows = given.call, facts.rows[ask.key]
    code, reply = call["status"], call["reply"]
    is_unique = "-" in json.dumps(given.payload)
    is_reply = code == 200 or call.get("is_tool") and isinstance(reply, dict) and "request" in reply
    if not is_reply:
        report.chances["callers_without_reply" if code is None else "callers_refused"] += 1
        if code is None and not facts.is_disturbed(given.begun_at, given.ended_at) and "imeout" not in str(reply):
            report.violate(3, f"a caller that answered {ask.key} had no reply, and nothing was killed", call)
        if code is not None and got_it and is_unique:
            report.violate(3, f"a caller was refused, and the server got its answer to {ask.key}", call, ask.got)
        return False
    stored, told_lost = reply["request"].get("resolved_payload"), reply.get("idempotent", code != 0)
    is_settled = facts.is_settled(ask, given.ended_at) and not facts.is_disturbed(given.begun_at, given.ended_at)
    is_replaced = any(row["error_code"] == "answer_replaced" for row in rows)
    report.chances["losers_told" if told_lost else "callers_told_won"] += 1
    if told_lost and got_it and is_unique and len(rows) == 1 and not is_replaced:
        report.violate(3, f"a caller was told that its answer to {ask.key} lost, and the server got it", call, ask.got)
    if told_lost and stored is None and is_settled:
        report.violate(3, f"a loser of {ask.key} was not told the answer that holds", call)
    # An answer that takes too long to be stored gives way to that of a client, which goes to the server without being stored.
    is_late = facts.is_late(ask.key)
    if told_lost and stored is not None and ask.withdrawn_at is None and not is_replaced and not is_late:
        if not any(agrees(ask, row["resolved_payload_json"], stored) for row in rows):
            report.violate(3, f"a loser of {ask.key} was told another answer than the ledger has", call, rows)
    if not told_lost and not got_it and is_settled:
        report.violate(3, f"a caller was told that its answer to {ask.key} won, and the server did not get it", call, rows)
    if not told_lost and ask.withdrawn_at is None and not is_replaced:
        if not any(agrees(ask, row["resolved_payload_json"], given.payload) for row in rows):
            report.violate(2, f"an answer to {ask.key} was acknowledged, and the ledger does not have it", call, rows)
    if call.get("is_tool") and stored != SECRET and (code == 0) != (not told_lost or stored == given.payload):
        report.violate(3, f"`respond` to {ask.key} ended with the wrong status", call)
    return told_lost


# Claims 2 and 4: what is stored first.


def check_storing(facts, ask, report):
    """Nothing passes while another program holds the lock of the ledger, unless its row says that it was not stored in time."""
    rows = facts.rows[ask.key]
    is_late = facts.is_late(ask.key)
    for begin, end in facts.locks:
        seen_at = facts.seen_at.get(ask.key, float("inf"))
        if begin <= ask.at <= end:
            report.chances["asked_while_locked"] += 1
            if seen_at <= end and not is_late:
                report.violate(4, f"a client got {ask.key} before it could be stored", vars(ask), rows)
        for given in facts.given[ask.key] if not is_late else []:
            got = next((each for each in ask.got if each["payload"] == given.payload), None)
            if not begin <= given.begun_at <= end:
                continue
            report.chances["answered_while_locked"] += 1
            if got and got["t"] <= end:
                report.violate(2, f"an answer to {ask.key} reached the server before it could be stored", given, got, rows)
            if given.call and given.call.get("status") == 200 and given.ended_at <= end:
                report.violate(2, f"an answer to {ask.key} was acknowledged before it could be stored", given.call, rows)


# Claims 4 and 9: states.


def check_showing(facts, ask, report):
    """`late` excuses much above, so something must have waited; without it, clients do not see what a rule answers, or what is held."""
    if is_from_earlier_hub(facts, ask):
        return
    rows, seen_at = facts.rows[ask.key], facts.seen_at.get(ask.key)
    if facts.is_late(ask.key):
        report.chances["late"] += 1
        if not facts.has_waited:
            report.violate(9, f"{ask.key} is late, and nothing has waited for the ledger", rows, ask.got)
    elif seen_at and facts.history.workload == "hub" and ask.got and ask.got[0]["t"] < seen_at:
        report.chances["shown_after_its_answer"] += 1  # a copy for another client that the hub had not read by then
    elif seen_at and rows and facts.is_for_nobody(ask):
        report.violate(7, f"a client got {ask.key}, which a rule answers or which is held", rows)


def check_content(ask, row, report):
    """A row is what decides: it says what the server asked."""
    report.chances["contents_compared"] += 1
    stored = member(row, "request_payload_json", "request_payload")
    if stored is not None and ask.params is not None and parsed(stored) != ask.params:
        report.violate(6, f"{row['request_id']} has another request than the server made", row, ask.params)


def check_listing(facts, listing, report):
    since, at, keys = listing["since"], listing["t"], listing["keys"]
    if keys is None:
        report.violate(4, "pending requests cannot be listed after the faults have ended", listing)
        return
    for ask in facts.asks.values():
        if ask.kind == "tool" or facts.is_excused(ask) or ask.at > since or ask.server_end_at < at:
            continue
        closed_at = min([each["t"] for each in ask.got] + [ask.withdrawn_at or float("inf")])
        if closed_at < since:
            report.chances["closed_when_listed"] += 1
            if ask.key in keys:
                report.violate(9, f"{ask.key} is closed and listed as pending", ask.got, facts.rows[ask.key])
        elif closed_at > at and not facts.is_policy_before(ask.key, at):
            report.chances["open_when_listed"] += 1
            if ask.key not in keys:
                report.violate(4, f"{ask.key} waits at the server and is not listed", facts.rows[ask.key], listing)
            elif (closed_at == float("inf") and ask.server_end_at > facts.due(at)
                  and any(given.begun_at > at for given in facts.given[ask.key])):
                report.violate(4, f"{ask.key} was listed and could not be answered", facts.given[ask.key], facts.rows[ask.key])


def check_state(facts, ask, row, report):
    name, status = row["request_id"], row["status"]
    begin, end = facts.clock.range_of(wall_of(row["resolved_at"]))
    if status not in STATES:
        report.violate(9, f"{name} is {status!r}, which is no documented state", row)
    if status == "resolved" and not (row["resolved_at"] and begin <= facts.clock.last and ask.at <= end):
        report.violate(9, f"{name} has no time in this round at which it was resolved", row)
    if status == "orphaned":
        report.chances["orphaned"] += 1
        if row["error_code"] not in ("server_exited", "server_restarted"):
            report.violate(9, f"{name} is orphaned without a documented reason", row)
        if ask.server_end_at > end or ask.server_end_at == float("inf"):
            report.violate(9, f"{name} was orphaned while its server ran", row, {"server_end_at": ask.server_end_at, "at": end})
        if ask.got and len(facts.rows[ask.key]) == 1 and not facts.is_disturbed(ask.got[0]["t"], ask.got[0]["t"]):
            report.violate(2, f"{name} is orphaned, and the server had its answer", row, ask.got)
    if status in ("pending", "expired") and facts.is_closed:
        report.violate(9, f"{name} is {status} after its session has ended", row)
    if ask.got or ask.withdrawn_at is not None or status != "resolved":
        return
    if row["resolution_source"] == "server":
        report.violate(5, f"{name} ended as withdrawn, and the server did not withdraw it", row)
    elif ask.server_end_at < facts.due(end) or facts.history.workload != "hub" and facts.is_disturbed(begin, end):
        report.chances["answers_lost_in_crash"] += 1
    else:
        report.violate(2, f"{name} is resolved, and the server never got an answer", row)


# Claim 6: provenance.


def check_names(facts, ask, row, report):
    source, by, name = row["resolution_source"], row["resolved_by"], row["request_id"]
    if row["status"] == "resolved" and source == "policy":
        report.chances["by_rule" if str(by).startswith("rule:") else "by_expiry"] += 1
        if by not in facts.policies_of(ask):
            report.violate(6, f"{name} was answered by a policy that nobody has set", row)
        if parsed(row["resolved_payload_json"]) != DECLINE:
            report.violate(5, f"a rule or an expiry gave an answer to {ask.key} that nobody has set", row)
    elif row["status"] == "resolved" and source != "server":
        givers = [given for given in facts.given[ask.key] if agrees(ask, row["resolved_payload_json"], given.payload)]
        report.chances["winners_named"] += 1
        report.chances["by_fleet" if str(by).startswith("fleet:") else f"by_{source}"] += 1
        if not any(names(source, by, given) for given in givers):
            report.violate(6, f"{name} names {source} {by!r}, who did not give this answer", row, givers)
    for answer in (each for each in facts.answers[ask.key] if each["request_id"] == name):
        source, by = member(answer, "source", "resolution_source"), member(answer, "by", "resolved_by")
        is_own = source == "policy" and by in facts.policies_of(ask) and parsed(payload_of(answer)) == DECLINE
        if not is_own and not any(is_named(answer, given) for given in facts.given[ask.key]):
            report.violate(6, f"an answer to {ask.key} names somebody who gave none", answer, facts.given[ask.key])


# Secret answers, the documented exception of claims 2 and 8.


def check_secrets(facts, report):
    nonces = {}
    for ask in (each for each in facts.asks.values() if each.kind == "secret"):
        for given in facts.given[ask.key]:
            for answer in (given.payload.get("answers") or {}).values():
                nonces[answer["answers"][0]] = ask.key
    stored = [json.dumps(each) for each in facts.history.rows + facts.history.answers]
    stored += [record.line or json.dumps(record.data) for record in facts.history.records if record.line or record.data]
    report.chances["secrets_sought"] += len(nonces)
    everything = "\n".join(stored)
    is_in = lambda nonce, text: f'"{nonce}"' in text or f'\\"{nonce}\\"' in text
    for nonce in (each for each in nonces if is_in(each, everything)):
        for text in (each for each in stored if is_in(nonce, each)):
            report.violate(8, f"the secret answer {nonce} to {nonces[nonce]} is stored", text)
    for name, data in facts.history.files.items():
        for nonce in nonces:
            if nonce.encode() in data and re.search(rb"(?<![\w-])%s(?!\d)" % nonce.encode(), data):
                report.violate(8, f"the secret answer {nonce} to {nonces[nonce]} is in {name}")


# Claim 7: order and completeness of each direction.


class Stream:
    """Lines in their order, with a cursor that only goes forward."""

    def __init__(self, lines, times=None):
        self.lines, self.times = lines, times
        self.positions = positions_of(lines)
        self.contents = None

    def next_after(self, line, cursor):
        """The first position of the line after the cursor, or None."""
        return after(self.positions.get(line, []), cursor)

    def with_content(self, message, sign):
        """The positions of lines with this sign that are this message once no envelope is in them."""
        if self.contents is None:
            self.contents = positions_of([sign in line and content_of(without_envelope(parse(line))) for line in self.lines])
        return self.contents.get(content_of(message), [])


def positions_of(values):
    positions = defaultdict(list)
    for index, value in enumerate(values):
        positions[value].append(index)
    return positions


def after(positions, cursor):
    at = bisect.bisect_right(positions, cursor)
    return positions[at] if at < len(positions) else None


def content_of(message):
    return message and json.dumps(message, sort_keys=True)


def is_made_here(line):
    """Whether a line to the server is codex-shim's own: a call, or an answer. Claim 5 traces what they say."""
    message = parse(line) or {}
    is_call = str(message.get("id")).startswith("codex-shim:") or message == {"method": "initialized"}
    return is_call or is_answer(message)


def lines_of(events, what, conn=None):
    chosen = [each for each in events if each["ev"] == what and (conn is None or each["conn"] == conn)]
    return Stream([each["line"] for each in chosen], [each["t"] for each in chosen])


def split_envelope(text):
    """An envelope and the words behind it; None if the text begins with none."""
    head, end, words = text.partition("\x1f")
    envelope = parse(head.removeprefix("\x1eCODEX_META ")) if end and head.startswith("\x1eCODEX_META ") and "\n" not in head else None
    is_whole = envelope and envelope.get("type") == "user_cmd_context" and "v" in envelope
    return (envelope, words) if is_whole and isinstance(envelope.get("commands"), list) else None


def without_envelope(value):
    """A message without the context that codex-shim puts in front of a user's words."""
    if isinstance(value, str):
        found = split_envelope(value)
        return found[1] if found else value
    if isinstance(value, list):
        return [without_envelope(each) for each in value]
    return {name: without_envelope(each) for name, each in value.items()} if isinstance(value, dict) else value


def take_apart(line):
    """The envelope in front of the first text of a message to the model, and that message without it; None if there is none."""
    message = parse(line) or {}
    items = (message.get("params") or {}).get("input") if message.get("method") in ("turn/start", "turn/steer") else None
    texts = [each for each in items or [] if isinstance(each.get("text"), str)]
    found = split_envelope(texts[0]["text"]) if texts else None
    if not found:
        return None
    first = [{**texts[0], "text": found[1]}] if found[1] or len(texts) > 1 else []
    at = items.index(texts[0])
    return found[0], {**message, "params": {**message["params"], "input": items[:at] + first + items[at + 1 :]}}


def places_in(sent, line, is_to_server):
    """Where the other side sent this line, which may have got an envelope on the way to the server, or lost one on the way back."""
    if line in sent.positions:
        return sent.positions[line]
    if is_to_server:
        found = take_apart(line) if ENVELOPE in line else None
        return sent.with_content(found[1], "turn/") if found else []
    message = parse(line)
    return sent.with_content(message, ENVELOPE) if message else []


def compare(report, sent, received, may_miss, may_be_late, is_own, where, is_to_server):
    """`received` is `sent` in its order, but for lines that may be missing or late, and lines of codex-shim itself."""
    cursor, first, seen = -1, None, set()
    for line in received.lines:
        if not line.strip():
            continue
        if not is_to_server and ENVELOPE in line:
            report.violate(8, f"{where}: an envelope came to the client", line)
        # A late line may look like a repetition of it that comes later.
        places = places_in(sent, line, is_to_server)
        unseen = [each for each in places if each not in seen] if may_be_late(line) else []
        position = after(places, cursor)
        if unseen:
            seen.add(unseen[0])
            report.chances["lines_shown_late"] += unseen[0] < cursor
        elif position is not None:
            cursor = position
            first = position if first is None else first
            seen.add(position)
            report.chances["lines_in_order"] += 1
            report.chances["lines_with_envelope"] += line not in sent.positions
        elif places:
            report.violate(7, f"{where}: a line came twice or out of order", line)
        elif not is_own(line):
            report.violate(7, f"{where}: a line that the other side did not send", line)
    for index, line in enumerate(sent.lines):
        if index not in seen and line.strip():
            reason = may_miss(line, sent.times[index], index > cursor, first is None or index < first)
            report.chances[f"withheld_{reason}" if reason else "lines_lost"] += 1
            if not reason:
                report.violate(7, f"{where}: a line was lost", line, {"t": sent.times[index]})


def check_directions(facts, report):
    history = facts.history
    servers = {events[0]["token"]: events for events in history.servers}
    for events in history.clients:
        name, is_attached = events[0]["name"], events[0]["kind"] == "attached"
        place = facts.server_names.get(name)
        if place is None and not is_attached:
            continue
        token, conn = place or (serving(servers, events), 0)
        if token is None:
            continue
        sends, receives = lines_of(events, "send"), lines_of(events, "recv")
        ids = {json.dumps((parse(line) or {}).get("id")) for line in sends.lines}
        # `serve` answers the `initialize` of an attached client itself.
        own = {line for line in receives.lines if is_attached and is_answer(parse(line)) and parse(line)["id"] == f"c{name}-1"}
        others = [lines_of(other, "send") for other in history.clients if is_attached and other is not events]
        is_of_other = lambda line: any(places_in(other, line, True) for other in others)
        end_at = next((each["t"] for each in events if each["ev"] == "end"), float("inf"))
        # A line after the last one that passed; while the connection stood, a barrier passed after it.
        is_cut = lambda at, is_tail: is_tail and (end_at < facts.due(at) or facts.is_disturbed(at, at))
        miss_to_server = lambda line, at, is_tail, is_head: why_not_at_server(facts, line, at, is_cut(at, is_tail), is_attached)
        miss_to_client = lambda line, at, is_tail, is_head: why_not_at_client(
            facts, line, is_head, is_tail, is_cut(at, is_tail), is_attached, ids)
        compare(report, sends, lines_of(servers[token], "recv", conn), miss_to_server, facts.answers_late,
                lambda line: is_made_here(line) or is_of_other(line), f"{name} to the server", True)
        compare(report, lines_of(servers[token], "send", conn), receives, miss_to_client, facts.is_withheld, own.__contains__,
                f"server {token} to {name}", False)
    for events in history.servers:
        check_own_words(facts, events, report)


def check_own_words(facts, events, report):
    """What codex-shim itself says to the model, and the commands in an envelope, are somebody's."""
    calls = facts.history.calls
    reasons = [each["body"]["reason"] for each in calls if each["ev"] == "call" and "reason" in each["body"]]
    posted = Counter(each["body"]["text"] for each in calls if each["ev"] == "posted")
    pushed = [each["body"] for each in calls if each["ev"] == "pushed"]
    for line in (each["line"] for each in events if each["ev"] == "recv"):
        envelope, message = take_apart(line) or (None, parse(line) or {})
        for command in envelope["commands"] if envelope else []:
            report.chances["context_commands"] += 1
            is_pushed = any(all(command.get(name) == body[name] for name in ("cmd", "exit_code", "cwd"))
                            and (command.get("preview") or {}).get("lines") == [body["output"]] for body in pushed)
            if not is_pushed:
                report.violate(5, "an envelope has a command that nobody pushed", command)
        params = message.get("params") or {}
        if not str(message.get("id")).startswith("codex-shim:") or not {"input", "items"} & set(params):
            continue
        for text in texts_in(params.get("input") or params.get("items")):
            report.chances["own_words"] += 1
            posted[text] -= 1
            if posted[text] < 0 and not any(reason in text for reason in reasons):
                report.violate(5, "codex-shim told the model something that nobody said, or said it twice", line)


def texts_in(value):
    """All texts in the items of a call."""
    if isinstance(value, list):
        return [text for each in value for text in texts_in(each)]
    if isinstance(value, dict):
        return [each for name, each in value.items() if name == "text"] + [
            text for each in value.values() if isinstance(each, (list, dict)) for text in texts_in(each)]
    return []


def serving(servers, events):
    """The server of an attached client: the one that ran when it got its first message."""
    first = next((each["t"] for each in events if each["ev"] == "recv"), None)
    running = [token for token, each in servers.items() if first is not None and each[0]["t"] < first]
    return max(running, key=lambda token: servers[token][0]["t"], default=None)


def why_not_at_server(facts, line, at, is_cut, is_attached):
    message = parse(line)
    if is_attached and message and message.get("method") in ("initialize", "initialized"):
        return "own_handshake"
    ask = facts.asks.get(facts.givers_of.get(line)) if is_answer(message) else None
    if ask and (ask.got or not facts.is_settled(ask, at) or facts.is_policy(ask.key)):
        return "late_answer"
    return "tail" if is_cut else None


def why_not_at_client(facts, line, is_head, is_tail, is_cut, is_attached, ids):
    message = parse(line)
    if is_answer(message):
        if str(message["id"]).startswith("codex-shim:"):
            return "own_call"
        if is_attached and json.dumps(message["id"]) not in ids:
            return "own_call"
    elif message and "id" in message and facts.is_withheld(line):
        return "held"
    if is_attached and (is_head or is_tail):
        return "not_attached"
    return "tail" if is_cut else None


# Claim 8: the journal.


def check_journal(facts, report):
    history = facts.history
    on_record = {side: Counter() for side in ("client", "server")}
    omitted = {side: Counter() for side in ("client", "server")}
    gap_lines = sum(record.gap_lines or 0 for record in history.records)
    for record in history.records:
        if record.to is None or (history.workload == "hub" and record.to == "client" and record.conn is None):
            continue
        if record.line is None:
            omitted[record.to][record.omitted_bytes] += 1
        elif not record.masked:
            on_record[record.to][record.line] += 1
    received = [("client", event, None) for events in history.clients for event in events if event["ev"] == "recv"]
    received += [("server", event, events[0]["token"]) for events in history.servers for event in events if event["ev"] == "recv"]
    lost = [(begin, end) for begin, end, kind in facts.lossy if kind == "restore"]
    full = [(begin, end) for begin, end, kind in facts.lossy if kind == "full_disk"]
    is_in_gap = lambda event: any(begin <= event["t"] <= end for begin, end in full)
    is_in_copy = lambda event: any(begin <= event["t"] <= end for begin, end in lost)
    missing = []
    # Of omitted lines only the size is known. One that a gap may have takes none from another.
    for side, event, token in sorted(received, key=lambda each: is_in_gap(each[1])):
        if not event["line"].strip() or is_in_copy(event):
            continue
        report.chances["lines_on_record"] += 1
        size = len(bytes_of(event["line"]))
        if on_record[side][event["line"]] > 0:
            on_record[side][event["line"]] -= 1
        elif may_be_left_out(facts, event, token) and (omitted[side][size] > 0 or omitted[side][size + 1] > 0):
            omitted[side][size if omitted[side][size] > 0 else size + 1] -= 1
            report.chances["lines_omitted"] += 1
        else:
            missing.append((side, event))
    missing += [(f"read from the {side}", event) for side, event in unrecorded(facts, report) if not is_in_copy(event)]
    is_elsewhere = any(not is_in_gap(event) for _, event in missing)
    report.chances["lines_in_gaps"] += len(missing)
    if len(missing) > gap_lines or is_elsewhere:
        report.violate(8, f"{len(missing)} lines that a side received or sent are not in the journal, which has gaps for {gap_lines}",
                       *missing[:3])
    check_records(facts, report)
    check_own_records(facts, report)


def may_be_left_out(facts, event, token):
    """Whether a line to a server answers a secret question, or is no message and may answer one or a form; no other line may be left out."""
    message = parse(event["line"])
    if message is not None:
        ask = facts.asks.get(f"K{token}-{message['id']}") if is_answer(message) else None
        return bool(ask) and ask.kind == "secret"
    return "{" in event["line"] and any(
        ask.kind in ("secret", "elicitation") and ask.token == token and ask.at < event["t"] for ask in facts.asks.values())


def unrecorded(facts, report):
    """Lines that nobody received, since they were withheld, that have surely been read, and that are not on record all the same."""
    received = {event["line"] for events in facts.history.clients + facts.history.servers for event in events if event["ev"] == "recv"}
    on_record = {side: {record.line for record in facts.history.records if record.sender == side} for side in ("client", "server")}
    for events in facts.history.clients:
        end_at = facts.client_ends[events[0]["name"]]
        for event in (each for each in events if each["ev"] == "send" and each["line"] not in received):
            message, due = parse(event["line"]), facts.due(event["t"])
            key = facts.givers_of.get(event["line"])
            if end_at <= due or facts.is_disturbed(event["t"], event["t"]) or key in facts.asks and facts.asks[key].kind == "secret":
                continue
            report.chances["withheld_lines_on_record"] += 1
            if event["line"] not in on_record["client"] and message and not is_changed(message):
                yield "client", event
    yield from unrecorded_of_servers(facts, received, on_record["server"], report)


def unrecorded_of_servers(facts, received, on_record, report):
    for events in facts.history.servers:
        end_at = next((each["t"] for each in events if each["ev"] == "end"), float("inf"))
        closed = {each["conn"]: each["t"] for each in events if each["ev"] == "close"}
        for event in (each for each in events if each["ev"] == "send" and each["line"] not in received):
            due = facts.due(event["t"])
            if min(end_at, closed.get(event["conn"], end_at)) <= due or facts.is_disturbed(event["t"], event["t"]):
                continue
            report.chances["withheld_lines_on_record"] += 1
            if event["line"] not in on_record and event["line"].strip():
                yield "server", event


def is_changed(message):
    return message.get("method") in ("turn/start", "turn/steer", "initialize", "initialized")


def check_own_records(facts, report):
    """Each line that codex-shim has on record as its own was received, and as often, unless it was on its way in a crash."""
    received = {"client": Counter(), "server": Counter()}
    ends = {"client": list(facts.client_ends.values()), "server": [ask.server_end_at for ask in facts.asks.values()]}
    for side, logs in (("client", facts.history.clients), ("server", facts.history.servers)):
        for events in logs:
            received[side].update(each["line"] for each in events if each["ev"] == "recv")
            ends[side] += [each["t"] for each in events if each["ev"] == "end"]
    for record in facts.history.records:
        if record.sender != "shim" or record.line is None or record.masked or record.to not in received:
            continue
        received[record.to][record.line] -= 1
        begin, end = facts.clock.range_of(record.at / 1e6)
        due = facts.due(end)
        is_cut = facts.is_disturbed(begin, end) or any(begin <= each <= due for each in ends[record.to])
        report.chances["own_lines_received"] += received[record.to][record.line] >= 0
        if received[record.to][record.line] < 0 and not is_cut:
            report.violate(8, f"a line to the {record.to} is on record, and did not get there", vars(record))


def check_records(facts, report):
    """Each line on record was sent, and lines of one connection are on record in the order of reading."""
    history = facts.history
    streams = {"client": [lines_of(events, "send") for events in history.clients], "server": []}
    for events in history.servers:
        for conn in sorted({each["conn"] for each in events if each["ev"] == "open"}):
            streams["server"].append(lines_of(events, "send", conn))
    places = {side: defaultdict(list) for side in streams}
    for side, all_streams in streams.items():
        for stream in all_streams:
            for line in stream.positions:
                places[side][line].append(stream)
    cursors, bound, last_at = {}, {}, {}
    for record in history.records:
        if record.at and record.at < last_at.get(record.generation, 0):
            report.violate(8, "the time of a record goes back", vars(record))
        last_at[record.generation] = record.at
        begin, end = facts.clock.range_of(record.at / 1e6)
        if record.line is not None and not (begin <= facts.clock.last and facts.clock.first <= end):
            report.violate(8, "the time of a record is not in this round", vars(record))
        if record.sender not in streams or record.line is None or record.masked or not record.line.strip():
            continue
        candidates = places[record.sender].get(record.line, [])
        if not candidates:
            report.violate(8, f"a line of the {record.sender} is on record that it did not send", record.line)
            continue
        group = (record.generation, record.conn, record.sender)
        if record.conn is None:  # of a relay one connection, of `serve` and a hub's own several, one after the other
            group += (id(candidates[0]),)
        if group not in bound and len(candidates) == 1:
            bound[group] = candidates[0]
        stream = bound.get(group)
        if stream not in candidates:
            if stream is not None:
                report.violate(8, f"connection {group} has a line of another one on record", record.line)
            continue
        position = stream.next_after(record.line, cursors.get(group, -1))
        if position is None:
            report.violate(7, f"lines of {group} are on record out of order or twice", record.line)
        else:
            cursors[group] = position
            report.chances["records_in_order"] += 1
