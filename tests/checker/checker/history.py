"""What a run left behind: the logs of the parties, the ledger and the journal. Reads files, decides nothing."""

import base64
import glob
import json
import os
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field

from checker.logs import read_log, text_of


@dataclass
class Record:
    """A record of the journal. `to` is the side that the line went to; `line` is None if it is not on record."""

    generation: str
    conn: object = None
    at: int = 0
    sender: str = "shim"
    to: str = None
    line: str = None
    omitted_bytes: int = None
    masked: bool = False
    replaces: bool = False
    event: str = None
    data: dict = None
    gap_lines: int = None


@dataclass
class History:
    workload: str = "relay"
    servers: list = field(default_factory=list)  # a list of events for each process of the server
    clients: list = field(default_factory=list)  # a list of events for each client
    calls: list = field(default_factory=list)  # events of the API callers
    faults: list = field(default_factory=list)  # events of the nemesis
    rows: list = field(default_factory=list)  # codex_pending_requests
    answers: list = field(default_factory=list)  # codex_request_answers, in the order of their storage
    records: list = field(default_factory=list)  # the journal, in its order
    flaws: list = field(default_factory=list)  # parts of the journal that cannot be read
    files: dict = field(default_factory=dict)  # the bytes of all files of the home, and of what codex-shim said on stderr


def members(text):
    """Top-level members of a JSON object: name -> (value, raw text), without loss of the raw text."""
    decoder, at, found = json.JSONDecoder(), 1, {}
    while text[at] != "}":
        at += text[at] == ","
        name, at = decoder.raw_decode(text, at)
        value, end = decoder.raw_decode(text, at + 1)
        found[name] = (value, text[at + 1 : end])
        at = end
    return found


def parse_record(generation, text, resolve):
    found = members(text)
    value = {name: pair[0] for name, pair in found.items()}
    sender = value.get("from", "shim")
    record = Record(generation, value.get("conn"), value.get("at", 0), sender,
                    {"client": "server", "server": "client"}.get(sender, value.get("to")))
    record.masked, record.replaces = value.get("masked", False), value.get("replaces", False)
    record.event, record.data = value.get("event"), value.get("data")
    record.gap_lines = value["gap"]["lines"] if "gap" in value else None
    if "line" in found:
        record.line = found["line"][1]
    elif "text" in value:
        record.line = value["text"]
    elif "base64" in value:
        record.line = text_of(base64.b64decode(value["base64"]))
    elif "same" in value:
        record.line = resolve(value["same"])
    elif "omitted" in value:
        record.omitted_bytes = value.get("bytes")
    return record


def read_segment(path, flaws):
    generation = os.path.basename(path).split("-")[0]
    with open(path, "rb") as file:
        data = file.read()
    records, by_offset, offset = [], {}, 0
    for raw in data.split(b"\n")[:-1]:  # a record without its newline is torn, and not on record
        try:
            record = parse_record(generation, raw.decode(), lambda at: by_offset[at].line)
            by_offset[offset] = record
            records.append(record)
        except (ValueError, LookupError) as error:
            flaws.append(f"{os.path.basename(path)} at byte {offset}: {error!r}: {raw[:200]!r}")
        offset += len(raw) + 1
    return records


def read_ledger(path):
    """Rows of both tables, from a copy, so that the original stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        for each in glob.glob(path + "*"):
            shutil.copy(each, folder)
        database = sqlite3.connect(os.path.join(folder, os.path.basename(path)))
        database.row_factory = sqlite3.Row
        tables = []
        for table in ("codex_pending_requests", "codex_request_answers"):
            tables.append([dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY rowid")])
        database.close()
    return tables


def load(folder, session_folders, workload):
    history = History(workload)
    for path in sorted(glob.glob(os.path.join(folder, "server-*.jsonl"))):
        history.servers.append(read_log(path))
    for path in sorted(glob.glob(os.path.join(folder, "client-*.jsonl"))):
        history.clients.append(read_log(path))
    for path in sorted(glob.glob(os.path.join(folder, "callers*.jsonl"))):
        history.calls += read_log(path)
    nemesis = os.path.join(folder, "nemesis.jsonl")
    history.faults = read_log(nemesis) if os.path.exists(nemesis) else []
    for session in session_folders:
        for path in sorted(glob.glob(os.path.join(session, "journal", "*.jsonl"))):
            history.records += read_segment(path, history.flaws)
        ledger = os.path.join(session, "ledger.db")
        if os.path.exists(ledger):
            rows, answers = read_ledger(ledger)
            history.rows += rows
            history.answers += answers
        home = os.path.dirname(os.path.dirname(session))
        paths = [os.path.join(parent, name) for parent, _, names in os.walk(home) for name in names]
        for path in filter(os.path.isfile, [*paths, os.path.join(folder, "stderr.txt")]):
            with open(path, "rb") as file:
                history.files[os.path.relpath(path, home)] = file.read()
    return history
