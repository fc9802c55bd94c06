#!/usr/bin/env python3
"""Records the WebSocket traffic between codex clients and `codex app-server --listen unix://PATH`.

    ws_tap.py tap --listen SOCKET --server SOCKET --record FILE   pass bytes through and record them
    ws_tap.py show FILE                                           print a recording, one line for each message
    ws_tap.py mask FILE --home DIR --project DIR                  print a recording that can be published

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
    arguments = parser.parse_args()
    if arguments.tool == "tap":
        asyncio.run(tap(arguments))
    else:
        show(arguments)


if __name__ == "__main__":
    try:
        main()
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)
