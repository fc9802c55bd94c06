"""Claims 7 and 8: the lines of each direction, the journal, and where a secret answer is. And what codex-shim says to the model by itself."""

import bisect
import json
import re
from collections import Counter, defaultdict

from checker.facts import ENVELOPE, is_answer, parse
from checker.logs import bytes_of

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
    """Whether a line answers a secret question, or is no message and may answer a question, a form or a call with settings; no other line
    may be left out. Lines to a client have no token."""
    message = parse(event["line"])
    if token is None:
        return message is None and "{" in event["line"] and any(begin <= event["t"] <= end for begin, end in facts.openings)
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
