#!/usr/bin/env python3
"""A scripted `codex app-server`, on stdio or on a Unix socket, which logs every line that it sent and received.

The text of a turn is its script: JSON with `asks` (kinds of requests), `notes` (deltas), `gap_ms`, `withdraw_ms` and `repeat_ms`.
It behaves as codex does: the first answer to a request counts, later ones are ignored, `thread/resume` repeats open
requests under their ids, all subscribers of a thread get its messages.
"""

import heapq
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import time
import uuid

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from checker import ws  # noqa: E402
from checker.logs import Log, bytes_of, text_of  # noqa: E402

FOLDER = os.environ.get("CHECKER_LOGS", ".")
VERSION = "0.171.0"


class Connection:
    """`frame` turns a line into bytes; a connection on stdio has no socket."""

    def __init__(self, number, sock=None):
        self.number, self.sock = number, sock
        self.buffer, self.decoder, self.is_upgraded = b"", ws.Decoder(), sock is None
        self.name, self.is_ready = None, False

    def read(self):
        """Complete lines, and whether the peer is still there."""
        data = os.read(0, 1 << 18) if self.sock is None else self.sock.recv(1 << 18)
        if not data:
            return [], False
        if self.sock is None:
            *lines, self.buffer = (self.buffer + data).split(b"\n")
            return lines, True
        if not self.is_upgraded:
            self.buffer += data
            head, end, data = self.buffer.partition(b"\r\n\r\n")
            if not end:
                return [], True
            answer = ws.handshake_answer(head)
            if answer is None:
                return [], False
            self.sock.sendall(answer)
            self.is_upgraded = True
        lines = []
        for opcode, payload in self.decoder.feed(data):
            if opcode == ws.TEXT:
                lines.append(payload)
            elif opcode == ws.PING:
                self.sock.sendall(ws.encode(payload, ws.PONG))
            elif opcode == ws.CLOSE:
                return lines, False
        return lines, True

    def write(self, line):
        if self.sock is not None:
            self.sock.sendall(ws.encode(line))
            return
        line += b"\n"
        while line:
            line = line[os.write(1, line) :]


class Thread:
    def __init__(self, cwd):
        self.id, self.cwd, self.subscribers, self.turn = str(uuid.uuid4()), cwd, [], None
        self.asks_left, self.open = 0, []
        self.is_terse = "CHECKER_NO_FLAGS" in os.environ

    def status(self):
        if not self.turn:
            return {"type": "idle"}
        flags = {"waitingOnUserInput" if "requestUserInput" in ask.method else "waitingOnApproval" for ask in self.open}
        return {"type": "active", "activeFlags": [] if self.is_terse else sorted(flags)}

    def document(self):
        return {"id": self.id, "sessionId": self.id, "preview": "", "status": self.status(), "path": None,
                "cwd": self.cwd, "name": None, "turns": [], "source": "cli"}


class Ask:
    def __init__(self, rpc_id, key, method, thread, turn, line):
        self.rpc_id, self.key, self.method, self.thread, self.turn, self.line = rpc_id, key, method, thread, turn, line


class Server:
    def __init__(self):
        self.token = secrets.token_hex(3)
        self.log = Log(os.path.join(FOLDER, f"server-{time.monotonic_ns()}-{self.token}.jsonl"))
        self.log.put("start", pid=os.getpid(), token=self.token, argv=sys.argv[1:])
        self.selector = selectors.DefaultSelector()
        self.connections, self.threads, self.open, self.closed, self.timers = [], {}, {}, {}, []
        self.opened_count = self.ask_count = self.note_count = self.timer_count = 0

    # Input and output.

    def end(self, reason):
        self.log.put("end", reason=reason)
        os._exit(0)

    def add(self, sock=None):
        connection = Connection(self.opened_count, sock)
        self.opened_count += 1
        self.connections.append(connection)
        self.log.put("open", conn=connection.number)
        self.selector.register(sock or 0, selectors.EVENT_READ, lambda: self.read(connection))

    def drop(self, connection):
        if connection.sock is None:
            self.end("eof")
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        self.selector.unregister(connection.sock)
        connection.sock.close()
        for thread in self.threads.values():
            thread.subscribers = [each for each in thread.subscribers if each is not connection]
        self.log.put("close", conn=connection.number)

    def read(self, connection):
        try:
            lines, is_there = connection.read()
        except OSError:
            lines, is_there = [], False
        for line in lines:
            self.log.put("recv", conn=connection.number, line=text_of(line))
            self.take(connection, line)
        if not is_there:
            self.drop(connection)

    def send(self, connection, message):
        line = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
        self.log.put("send", conn=connection.number, line=text_of(line))
        try:
            connection.write(line)
        except OSError:
            self.drop(connection)

    def send_all(self, connections, message):
        line = json.dumps(message, separators=(",", ":")).encode()
        for connection in list(connections):
            self.send(connection, line)

    def later(self, delay_ms, action):
        self.timer_count += 1
        heapq.heappush(self.timers, (time.monotonic() + delay_ms / 1000, self.timer_count, action))

    def run(self):
        while True:
            wait_s = max(0, self.timers[0][0] - time.monotonic()) if self.timers else None
            for key, _ in self.selector.select(wait_s):
                key.data()
            while self.timers and self.timers[0][0] <= time.monotonic():
                heapq.heappop(self.timers)[2]()

    # Messages.

    def take(self, connection, line):
        try:
            message = json.loads(line)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        if "method" in message and "id" in message:
            self.take_call(connection, message["id"], message["method"], message.get("params") or {})
        elif "id" in message:
            self.take_answer(connection, message)

    def take_call(self, connection, rpc_id, method, params):
        def result(value):
            self.send(connection, {"id": rpc_id, "result": value, "nonce": self.nonce()})

        thread = self.threads.get(params.get("threadId"))
        if method == "initialize":
            connection.name, connection.is_ready = params["clientInfo"]["name"], True
            self.log.put("name", conn=connection.number, name=connection.name)
            result({"userAgent": f"{connection.name}/{VERSION} (Linux)", "codexHome": os.environ.get("CODEX_HOME", "/"),
                    "platformFamily": "unix", "platformOs": "linux"})
        elif method == "thread/start":
            thread = Thread(params.get("cwd") or "/")
            self.threads[thread.id] = thread
            thread.subscribers.append(connection)
            result({"thread": thread.document(), "model": "m", "cwd": thread.cwd, "approvalPolicy": "on-request",
                    "sandbox": {"type": "readOnly"}})
            self.send_all(self.ready(), self.note("thread/started", {"thread": thread.document()}))
        elif method == "thread/resume" and thread:
            if connection not in thread.subscribers:
                thread.subscribers.append(connection)
            result({"thread": thread.document(), "model": "m", "cwd": thread.cwd, "approvalPolicy": "on-request",
                    "sandbox": {"type": "readOnly"}})
            self.ask_again(thread, [connection])
        elif method == "turn/start" and thread:
            self.start_turn(thread, params, result)
        elif method == "turn/interrupt" and thread:
            result({})
            self.end_turn(thread, thread.turn, "interrupted")
        elif method == "thread/unsubscribe" and thread:
            thread.subscribers = [each for each in thread.subscribers if each is not connection]
            result({})
        elif method == "thread/loaded/list":
            result({"data": list(self.threads), "nextCursor": None})
        elif method == "thread/list":
            result({"data": [each.document() for each in self.threads.values()], "nextCursor": None})
        elif method == "thread/read" and thread:
            result({"thread": thread.document()})
        elif method in ("thread/turns/list", "thread/items/list", "model/list"):
            result({"data": [], "nextCursor": None})
        elif method in ("turn/steer", "thread/inject_items"):
            result({"turnId": thread.turn if thread else None})
        else:
            self.log.put("unknown_call", method=method)
            self.send(connection, {"id": rpc_id, "error": {"code": -32600, "message": f"unknown: {method}"},
                                   "nonce": self.nonce()})

    def take_answer(self, connection, message):
        """The first answer to a request counts; the log says who gave each."""
        rpc_id = message["id"]
        ask = self.open.get(rpc_id) if isinstance(rpc_id, int) else None
        known = ask or self.closed.get(rpc_id)
        self.log.put("answer", conn=connection.number, rpc_id=rpc_id, key=known and known.key, counts=ask is not None,
                     payload=message.get("result", {"error": message.get("error")}))
        if ask is None:
            return
        self.close(ask)
        self.send_resolved(ask)
        self.send_status(ask.thread)
        result = message.get("result")
        if isinstance(result, dict) and result.get("decision") == "cancel":
            self.end_turn(ask.thread, ask.turn, "interrupted")
        elif not ask.thread.asks_left and not ask.thread.open:
            self.end_turn(ask.thread, ask.turn, "completed")

    def close(self, ask):
        del self.open[ask.rpc_id]
        ask.thread.open.remove(ask)
        self.closed[ask.rpc_id] = ask

    # Turns.

    def nonce(self):
        self.note_count += 1
        return f"s{self.token}-{self.note_count}"

    def note(self, method, params):
        return {"method": method, "params": params, "nonce": self.nonce()}

    def ready(self):
        return [each for each in self.connections if each.is_ready]

    def send_resolved(self, ask):
        self.send_all(ask.thread.subscribers,
                      self.note("serverRequest/resolved", {"threadId": ask.thread.id, "requestId": ask.rpc_id}))

    def send_status(self, thread):
        self.send_all(self.ready(), self.note("thread/status/changed", {"threadId": thread.id, "status": thread.status()}))

    def start_turn(self, thread, params, result):
        text = "".join(each.get("text", "") for each in params.get("input", []))
        try:
            script = json.loads(text.rpartition("\x1f")[2])
        except ValueError:
            script = {}
        if thread.turn:
            result({"turn": {"id": thread.turn, "status": "inProgress", "items": []}})
            return
        turn = thread.turn = str(uuid.uuid4())
        result({"turn": {"id": turn, "status": "inProgress", "items": []}})
        where = {"threadId": thread.id, "turnId": turn}
        self.send_all(thread.subscribers, self.note("turn/started", {"threadId": thread.id, "turn": {
            "id": turn, "status": "inProgress", "items": []}}))
        self.send_status(thread)
        self.send_all(thread.subscribers, self.note("item/started", {**where, "item": {
            "type": "userMessage", "id": "u" + turn[:8], "content": params.get("input", [])}}))
        gap_ms, at_ms = script.get("gap_ms", 1), 0
        for number in range(script.get("notes", 0)):
            at_ms += gap_ms
            text = "x" * (script.get("note_bytes", 10) if number % 7 == 0 else 10)
            self.later(at_ms, lambda text=text: self.send_all(thread.subscribers, self.note(
                "item/agentMessage/delta", {**where, "itemId": "m" + turn[:8], "delta": text + self.nonce()})))
        for line in script.get("odd_lines", []):
            self.later(at_ms, lambda line=line: [
                self.send(each, bytes_of(line) + self.nonce().encode()) for each in list(thread.subscribers)])
        asks = script.get("asks", [])
        thread.asks_left = len(asks)
        for kind in asks:
            at_ms += gap_ms
            self.later(at_ms, lambda kind=kind: thread.turn == turn and self.ask(thread, turn, kind))
        if script.get("repeat_ms"):
            self.later(at_ms + script["repeat_ms"], lambda: self.ask_again(thread, thread.subscribers))
        if script.get("withdraw_ms"):
            self.later(at_ms + script["withdraw_ms"], lambda: self.end_turn(thread, turn, "interrupted"))
        if not asks:
            self.later(at_ms + gap_ms, lambda: self.end_turn(thread, turn, "completed"))

    def end_turn(self, thread, turn, status):
        """Ends the turn if it is the one that runs, and withdraws its open requests."""
        if turn is None or thread.turn != turn:
            return
        thread.turn = None
        self.send_all(thread.subscribers, self.note("turn/completed", {"threadId": thread.id, "turn": {
            "id": turn, "status": status, "items": [], "error": None}}))
        for ask in list(thread.open):
            self.close(ask)
            self.log.put("withdraw", key=ask.key, rpc_id=ask.rpc_id)
            self.send_resolved(ask)
        self.send_status(thread)

    def ask_again(self, thread, connections):
        """Repeats the open requests of the thread, under their ids."""
        for ask in list(thread.open):
            for connection in list(connections):
                self.log.put("ask", key=ask.key, rpc_id=ask.rpc_id, conn=connection.number, again=True)
                self.send(connection, ask.line)

    def ask(self, thread, turn, kind):
        rpc_id = self.ask_count
        self.ask_count += 1
        thread.asks_left -= 1
        key = f"K{self.token}-{rpc_id}"
        where = {"threadId": thread.id, "turnId": turn, "itemId": key, "startedAtMs": int(time.time() * 1000)}
        words = ["accept", "acceptForSession", "decline", "cancel"]
        method, params = {
            "command": ("item/commandExecution/requestApproval", {
                "kind": "command", **where, "reason": None, "command": f"/bin/bash -lc 'touch {key}'",
                "cwd": thread.cwd, "availableDecisions": words}),
            "ruled": ("item/commandExecution/requestApproval", {
                "kind": "command", **where, "reason": None, "command": f"/bin/bash -lc 'forbidden {key}'",
                "cwd": thread.cwd, "availableDecisions": words}),
            "file": ("item/fileChange/requestApproval", {**where, "reason": None, "grantRoot": None}),
            "question": ("item/tool/requestUserInput", {**where, "isBlocking": True, "autoResolutionMs": None,
                         "questions": [self.question(key, False)]}),
            "secret": ("item/tool/requestUserInput", {**where, "isBlocking": True, "autoResolutionMs": None,
                       "questions": [self.question(key, True)]}),
            "elicitation": ("mcpServer/elicitation/request", {
                "threadId": thread.id, "turnId": turn, "serverName": "lab", "mode": "form", "message": key,
                "requestedSchema": {"type": "object", "properties": {}}}),
            "unknown": ("checker/newKind", where),
            "tool": ("item/tool/call", {"threadId": thread.id, "turnId": turn, "callId": key, "tool": "lab",
                                        "arguments": {}}),
        }[kind]
        line = json.dumps({"method": method, "id": rpc_id, "params": params}, separators=(",", ":")).encode()
        ask = self.open[rpc_id] = Ask(rpc_id, key, method, thread, turn, line)
        thread.open.append(ask)
        self.log.put("ask", key=key, rpc_id=rpc_id, conn=None, kind=kind, again=False)
        for connection in list(thread.subscribers):
            self.send(connection, ask.line)
        self.send_status(thread)

    @staticmethod
    def question(key, is_secret):
        return {"id": "q", "header": "Q", "question": key, "isOther": True, "isSecret": is_secret,
                "options": None if is_secret else [{"label": "Red", "description": "red"}]}


def main():
    arguments = sys.argv[1:]
    if "--version" in arguments:
        print(f"codex-cli {VERSION}")
        return
    if "app-server" not in arguments:
        sys.exit(2)
    server = Server()
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, lambda number, _: server.end(signal.Signals(number).name))
    listen = arguments[arguments.index("--listen") + 1] if "--listen" in arguments else "stdio://"
    if listen.startswith("unix://"):
        path = listen.removeprefix("unix://")
        if os.path.lexists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(64)
        server.selector.register(listener, selectors.EVENT_READ, lambda: server.add(listener.accept()[0]))
    else:
        server.add()
    server.run()


if __name__ == "__main__":
    main()
