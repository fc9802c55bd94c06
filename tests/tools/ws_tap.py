#!/usr/bin/env python3
"""Records the WebSocket traffic between codex clients and `codex app-server --listen unix://PATH`.

    ws_tap.py tap --listen SOCKET --server SOCKET --record FILE   pass bytes through and record them
    ws_tap.py show FILE                                           print a recording, one line for each message
    ws_tap.py mask FILE --codex-home DIR --project DIR            print a recording that can be published

The tap listens on one Unix socket and opens one connection to the server for each client. It forwards the bytes as it
reads them, before it parses them, so that neither side can notice it. It never answers for the server, changes a byte,
or reconnects. If the server refuses a connection, the tap closes that client's connection. On SIGUSR1 it aborts all
connections and goes on listening.

A recording is one JSON object for each line:

    {"conn":1,"at_ms":12.3,"from":"client","kind":"text","text":"{…}","frames":[217]}

`conn` counts connections from 1; `at_ms` counts from the start of the tap; `from` is `client`, `server` or `tap`.
`kind` is one of:

| kind | members |
|---|---|
| `tap_started` | `time` in Unix milliseconds |
| `connect` | `pid` of the client |
| `server_refused` | `error`; no server connection was made |
| `http` | `text`, the head of a request or of its answer |
| `text`, `binary` | `text` or `base64`, and `frames`, the payload length of each frame of the message |
| `ping`, `pong` | `base64` of the payload; `inside` if it came between the fragments of a message |
| `close` | `code`, `reason` |
| `raw` | `base64` of bytes that are neither HTTP nor WebSocket |
| `aborted_all` | none; the tap had a SIGUSR1 |
| `eof`, `reset` | the end of this direction; `pending`, the unparsed bytes, if there are any |
"""

import argparse
import asyncio
import base64
import json
import os
import re
import signal
import socket
import struct
import sys
import time

HEAD_BYTES_MAX = 64 * 1024
READ_BYTES = 64 * 1024
CONTROL_KINDS = {9: "ping", 10: "pong"}


class Recording:
    """Appends one JSON object for each line, and flushes it."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")
        self.start = time.monotonic()
        self.add(0, "tap", "tap_started", time=round(time.time() * 1000))

    def add(self, conn, origin, kind, **members):
        at_ms = round((time.monotonic() - self.start) * 1000, 1)
        record = {"conn": conn, "at_ms": at_ms, "from": origin, "kind": kind, **members}
        self.file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
        self.file.flush()


class Parser:
    """Turns the bytes of one direction into records. Bytes that it cannot parse become `raw` records."""

    def __init__(self, add):
        self.add = add
        self.buffer = bytearray()
        self.state = "head"
        self.opcode = 0
        self.message = bytearray()
        self.frames = []

    def feed(self, data):
        self.buffer += data
        if self.state == "head":
            self._head()
        if self.state == "frames":
            while self._frame():
                pass
        if self.state == "raw" and self.buffer:
            self.add("raw", base64=base64.b64encode(self.buffer).decode())
            self.buffer.clear()

    def end(self, kind):
        if self.buffer or self.frames:
            self.add(kind, pending=len(self.buffer) + len(self.message))
        else:
            self.add(kind)

    def _head(self):
        end = self.buffer.find(b"\r\n\r\n")
        if end >= 0:
            self.add("http", text=self.buffer[:end].decode("latin-1"))
            del self.buffer[: end + 4]
            self.state = "frames"
        elif not re.match(rb"[A-Z/]", self.buffer) or len(self.buffer) > HEAD_BYTES_MAX:
            self.state = "raw"

    def _frame(self):
        """Takes one frame from the buffer; returns whether there was one."""
        data = self.buffer
        if len(data) < 2:
            return False
        length, at = data[1] & 0x7F, 2
        if length == 126:
            if len(data) < 4:
                return False
            (length,), at = struct.unpack_from(">H", data, 2), 4
        elif length == 127:
            if len(data) < 10:
                return False
            (length,), at = struct.unpack_from(">Q", data, 2), 10
        mask = None
        if data[1] & 0x80:
            mask, at = bytes(data[at : at + 4]), at + 4
        if len(data) < at + length:
            return False
        payload = unmasked(bytes(data[at : at + length]), mask)
        first = data[0]
        del data[: at + length]
        self._payload(first & 0x80, first & 0x70, first & 0x0F, payload)
        return True

    def _payload(self, is_last, reserved, opcode, payload):
        extra = {"reserved_bits": reserved >> 4} if reserved else {}
        if opcode == 8:
            code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else None
            self.add("close", code=code, reason=payload[2:].decode("utf-8", "replace"), **extra)
        elif opcode in CONTROL_KINDS:
            if self.frames:
                extra["inside"] = True
            self.add(CONTROL_KINDS[opcode], base64=base64.b64encode(payload).decode(), **extra)
        else:
            self.opcode = opcode or self.opcode
            self.message += payload
            self.frames.append(len(payload))
            if is_last:
                self._message(extra)

    def _message(self, extra):
        frames, message = self.frames, bytes(self.message)
        self.frames, self.message = [], bytearray()
        try:
            if self.opcode == 1:
                self.add("text", text=message.decode(), frames=frames, **extra)
                return
        except UnicodeDecodeError:
            extra["opcode"] = self.opcode
        self.add("binary", base64=base64.b64encode(message).decode(), frames=frames, **extra)


def unmasked(payload, mask):
    if not mask or not payload:
        return payload
    length = len(payload)
    key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
    return (int.from_bytes(payload, "big") ^ key).to_bytes(length, "big")


class Tap:
    def __init__(self, arguments):
        self.server_path = arguments.server
        self.recording = Recording(arguments.record)
        self.connections = 0
        self.open = set()

    async def client(self, reader, writer):
        self.connections += 1
        conn = self.connections
        peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.recording.add(conn, "client", "connect", pid=struct.unpack("iii", peer)[0])
        try:
            server = await asyncio.open_unix_connection(self.server_path, limit=READ_BYTES)
        except OSError as error:
            self.recording.add(conn, "tap", "server_refused", error=str(error))
            writer.transport.abort()
            return
        both = {writer.transport, server[1].transport}
        self.open |= both
        await asyncio.gather(
            self.forward(conn, "client", reader, server[1]), self.forward(conn, "server", server[0], writer)
        )
        self.open -= both
        server[1].close()
        writer.close()

    def abort_all(self):
        self.recording.add(0, "tap", "aborted_all")
        for transport in self.open:
            transport.abort()

    async def forward(self, conn, origin, reader, writer):
        parser = Parser(lambda kind, **members: self.recording.add(conn, origin, kind, **members))
        ended = "eof"
        try:
            while data := await reader.read(READ_BYTES):
                writer.write(data)
                parser.feed(data)
                await writer.drain()
        except (ConnectionError, BrokenPipeError):
            ended = "reset"
        parser.end(ended)
        try:
            if ended == "eof" and writer.can_write_eof():
                writer.write_eof()
            else:
                writer.transport.abort()
        except OSError:
            pass


async def tap(arguments):
    if os.path.lexists(arguments.listen):
        os.unlink(arguments.listen)
    listening = Tap(arguments)
    server = await asyncio.start_unix_server(listening.client, arguments.listen, limit=READ_BYTES)
    os.chmod(arguments.listen, 0o600)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, listening.abort_all)
    async with server:
        await server.serve_forever()


def show(arguments):
    """Prints a recording in columns; texts are cut at the width of `--columns`."""
    for line in open(arguments.file, encoding="utf-8"):
        record = json.loads(line)
        members = {key: value for key, value in record.items() if key not in ("conn", "at_ms", "from", "kind", "text")}
        text = record.get("text", "").replace("\r\n", " | ")
        arrow = {"client": "->", "server": "<-"}.get(record["from"], "--")
        print(f"{record['at_ms']:>10} {record['conn']:>3} {arrow} {record['kind']:<6} {json.dumps(members)} {text}"[: arguments.columns])


class Mask:
    """Replaces what names a machine, a person, a moment or a credential. Equal values stay equal within a recording."""

    EPOCH_S = 1767225600
    UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
    SECONDS = re.compile(r'(?<=":)(1[0-9]{9})(?=[,}])')
    MILLISECONDS = re.compile(r'(?<=":)(1[0-9]{12})(?=[,}])')
    DATE = re.compile(r"sessions/[0-9/]+/rollout-[0-9T-]+?-(?=[0-9a-f]{8}-)")

    def __init__(self, codex_home, project):
        self.paths = [(codex_home, "/home/user/.codex"), (project, "/home/user/project")]
        self.ids = {}
        self.ports = {}
        self.start_ms = 0

    def record(self, record):
        if record["kind"] == "tap_started":
            self.start_ms = record["time"]
            record["time"] = self.EPOCH_S * 1000
        elif record["kind"] == "connect":
            record["pid"] = 1000
        elif "text" in record:
            record["text"] = self.head(record["text"]) if record["kind"] == "http" else self.text(record["text"])
            if len(record.get("frames", [])) == 1:
                record["frames"] = [len(record["text"].encode())]
        return record

    @staticmethod
    def head(text):
        """The key and its answer are those of RFC 6455, section 1.3."""
        text = re.sub(r"(?im)^(sec-websocket-key: ).*?(\r?)$", r"\1dGhlIHNhbXBsZSBub25jZQ==\2", text)
        return re.sub(r"(?im)^(sec-websocket-accept: ).*?(\r?)$", r"\1s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\2", text)

    @staticmethod
    def shortened(text):
        """Cuts the answer to `model/list`, the longest of all, to its first model."""
        if '"availabilityNux"' not in text:
            return text
        message = json.loads(text)
        message["result"]["data"] = message["result"]["data"][:1]
        return json.dumps(message, ensure_ascii=False, separators=(",", ":"))

    def text(self, text):
        text = self.shortened(text)
        for path, instead in self.paths:
            text = text.replace(path, instead)
        text = re.sub(r"Bearer [0-9A-Za-z._-]+", "[masked]", text)
        text = re.sub(r'"serverName":"[^"]*"', '"serverName":"host"', text)
        text = re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, text)
        text = re.sub(r"(127\.0\.0\.1:)([0-9]+)", lambda found: found[1] + self.port(found[2]), text)
        text = self.DATE.sub("sessions/2026/01/01/rollout-2026-01-01T00-00-00-", text)
        text = self.UUID.sub(self.uuid, text)
        shift_ms = self.start_ms - self.EPOCH_S * 1000
        text = self.MILLISECONDS.sub(lambda found: str(int(found[1]) - shift_ms), text)
        return self.SECONDS.sub(lambda found: str(int(found[1]) - shift_ms // 1000), text)

    def port(self, port):
        return self.ports.setdefault(port, str(8001 + len(self.ports)))

    def uuid(self, found):
        number = len(self.ids) + 1
        return self.ids.setdefault(found[0], f"00000000-0000-{found[1]}000-8000-{number:012}")


def mask(arguments):
    masking = Mask(arguments.codex_home, arguments.project)
    for line in open(arguments.file, encoding="utf-8"):
        print(json.dumps(masking.record(json.loads(line)), ensure_ascii=False, separators=(",", ":")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tools = parser.add_subparsers(dest="tool", required=True)
    taps = tools.add_parser("tap")
    taps.add_argument("--listen", required=True)
    taps.add_argument("--server", required=True)
    taps.add_argument("--record", required=True)
    shows = tools.add_parser("show")
    shows.add_argument("file")
    shows.add_argument("--columns", type=int, default=240)
    masks = tools.add_parser("mask")
    masks.add_argument("file")
    masks.add_argument("--codex-home", required=True)
    masks.add_argument("--project", required=True)
    arguments = parser.parse_args()
    if arguments.tool == "tap":
        asyncio.run(tap(arguments))
    elif arguments.tool == "mask":
        mask(arguments)
    else:
        show(arguments)


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
