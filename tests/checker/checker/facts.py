"""A history, joined by request: who asked, who answered, what the ledger has, and what had passed when."""

import datetime
import functools
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from checker.callers import key_of

SECRET = {"omitted": "secret"}
KILLS = ("kill_relay", "kill_server", "drop_client", "stop_session", "hub_restart", "end")
ANSWERERS = ("client", "api", "tui", "web", "cli")
# The ledger has milliseconds, of a clock that is set meanwhile.
CLOCK_S = 0.3
# How long the ledger has to store a request or an answer; then it is passed on all the same.
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
        # From when to when calls waited whose answers may have settings to mask.
        self.client_ends, self.openings = {}, []
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
        # Once something has waited in vain, nothing waits until the ledger stores again. Of what did not arrive nobody knows.
        self.has_waited = any(each["kind"] in ("lock_ledger", "slow_disk", "full_disk") for each in self.faults) or any(
            wait >= HOLD_S for ask in self.asks.values() for wait in self.waits(ask)) or any(
            self.is_late(key) and (key not in self.seen_at or not ask.got) for key, ask in self.asks.items())
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
        opened = {}
        for event in events:
            message = parse(event.get("line"))
            if event["ev"] == "send" and message and message.get("method") in ("thread/start", "thread/resume"):
                opened[message["id"]] = event["t"]
            elif event["ev"] == "recv" and is_answer(message) and str(message["id"]) in opened:
                self.openings.append((opened.pop(message["id"]), event["t"]))
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

    def is_kept(self, ask, given):
        """Whether the answer of a loser must be in the ledger. It waits while another one is stored, and is kept as lost after that."""
        ends = [self.clock.range_of(wall_of(row["resolved_at"]))[1] for row in self.rows[ask.key] if row["resolved_at"]]
        lost_at = max([given.ended_at, *ends])
        return not self.is_disturbed(given.begun_at, lost_at) and ask.server_end_at >= self.due(lost_at)

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
        # A round has events from before its first part starts, and from after its last part ends.
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
