"""Clients: on the stdio of a relay, attached to `serve`, or connected to a hub. Each logs every line it sent and got."""

import json
import os
import socket
import subprocess
import threading

from checker import ws
from checker.logs import PATIENCE_S, Log, bytes_of, text_of


class Stdio:
    """The client's end of a relay that it has started."""

    def __init__(self, arguments, env, cwd, stderr_path):
        with open(stderr_path, "ab") as stderr:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=env, cwd=cwd, bufsize=0)
        self.buffer = b""

    def write(self, line):
        data = line + b"\n"
        while data:
            data = data[os.write(self.process.stdin.fileno(), data) :]

    def read(self):
        data = os.read(self.process.stdout.fileno(), 1 << 18)
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return lines if data else None

    def close_input(self):
        self.process.stdin.close()

    def abort(self):
        self.process.stdin.close()
        self.process.stdout.close()


class Attached:
    """A connection to `serve`, upgraded by `POST …/attach`."""

    def __init__(self, control_path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(os.path.realpath(control_path))
        self.sock.sendall(b"POST /sessions/self/attach HTTP/1.1\r\nHost: shim\r\nConnection: Upgrade\r\n"
                          b"Upgrade: codex-shim-attach\r\nContent-Length: 0\r\n\r\n")
        head, self.first = ws.read_head(self.sock)
        if b" 101 " not in head.split(b"\r\n")[0]:
            self.sock.close()
            raise ConnectionError(head.split(b"\r\n")[0].decode("latin-1"))
        self.sock.settimeout(None)
        self.buffer = b""

    def write(self, line):
        self.sock.sendall(line + b"\n")

    def read(self):
        data = self.first or self.sock.recv(1 << 18)
        self.first = b""
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return lines if data else None

    def close_input(self):
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side was faster

    def abort(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster


class HubSocket:
    """A connection to the `codex.sock` of a hub."""

    def __init__(self, path):
        self.sock, self.first = ws.connect(path)
        self.decoder = ws.Decoder()

    def write(self, line):
        self.sock.sendall(ws.encode(line, masked=True))

    def read(self):
        data = self.first or self.sock.recv(1 << 18)
        self.first = b""
        lines = []
        for opcode, payload in self.decoder.feed(data):
            if opcode == ws.PING:
                self.sock.sendall(ws.encode(payload, ws.PONG, masked=True))
            elif opcode == ws.TEXT:
                lines.append(payload)
        return lines if data else None

    def close_input(self):
        self.abort()

    def abort(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster


class Client:
    """Sends calls and answers with a nonce in each line, so that no two lines of a run are equal."""

    def __init__(self, name, folder, rng, kind, life, on_request=None):
        self.name, self.rng, self.kind, self.on_request = name, rng, kind, on_request
        self.log = Log(os.path.join(folder, f"client-{name}.jsonl"))
        self.log.put("start", name=name, kind=kind, life=life)
        self.count, self.is_open = 0, True
        self.lock = threading.Lock()
        self.changed = threading.Condition()
        self.results, self.requests, self.resolved, self.ended_turns = {}, {}, set(), 0
        self.thread_ids, self.asked_count = [], 0

    def begin(self, transport):
        self.transport = transport
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def nonce(self):
        self.count += 1
        return f"c{self.name}-{self.count}"

    # Reading.

    def read(self):
        reason = "eof"
        while True:
            try:
                lines = self.transport.read()
            except (OSError, ValueError) as error:
                lines, reason = None, str(error)
            if lines is None:
                break
            for line in lines:
                self.log.put("recv", line=text_of(line))
                self.take(line)
        self.log.put("end", reason=reason)
        with self.changed:
            self.is_open = False
            self.changed.notify_all()

    def take(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            return
        if not isinstance(message, dict):
            return
        with self.changed:
            if "method" in message and "id" in message:
                self.requests[message["id"]] = message
                self.asked_count += 1
            elif "id" in message:
                self.results[message["id"]] = message
            elif message.get("method") == "serverRequest/resolved":
                self.resolved.add(message["params"]["requestId"])
            elif message.get("method") == "turn/completed":
                self.ended_turns += 1
            self.changed.notify_all()
        if "method" in message and "id" in message and self.on_request:
            self.on_request(self, message)

    # Writing.

    def send(self, message):
        self.send_line(json.dumps(message, separators=(",", ":")).encode())

    def send_line(self, line):
        with self.lock:
            self.log.put("send", line=text_of(line))
            try:
                self.transport.write(line)
            except (OSError, ValueError):
                self.log.put("send_failed")

    def call(self, method, params, wait_s=0):
        rpc_id = self.nonce()
        self.send({"id": rpc_id, "method": method, "params": params})
        with self.changed:
            self.changed.wait_for(lambda: rpc_id in self.results or not self.is_open, timeout=wait_s)
            return self.results.get(rpc_id, {}).get("result")

    def introduce(self):
        result = self.call("initialize", {"clientInfo": {"name": self.name, "title": None, "version": "1.0.0"},
                                          "capabilities": {"experimentalApi": True}}, PATIENCE_S)
        self.send({"method": "initialized", "nonce": self.nonce()})
        return result is not None

    def start_thread(self, cwd):
        result = self.call("thread/start", {"cwd": cwd, "approvalPolicy": "on-request", "sandbox": "read-only"}, PATIENCE_S)
        if result:
            self.thread_ids.append(result["thread"]["id"])
        return bool(result)

    def resume(self, thread_id):
        result = self.call("thread/resume", {"threadId": thread_id, "excludeTurns": True}, PATIENCE_S)
        if result:
            self.thread_ids.append(thread_id)
        return bool(result)

    def has_passed(self):
        """Waits until all that was sent on this connection has passed; False if the connection has ended instead."""
        return self.call("thread/loaded/list", {}, PATIENCE_S) is not None

    def start_turn(self, thread_id, script):
        script = {**script, "nonce": self.nonce()}
        self.call("turn/start", {"threadId": thread_id, "input": [
            {"type": "text", "text": json.dumps(script), "text_elements": []}]})

    def answer(self, rpc_id):
        """Answers a request of the server, whether or not it was answered before."""
        with self.changed:
            request = self.requests.get(rpc_id)
        if request is None or not self.is_open:
            return
        nonce = self.nonce()
        has_plain_errors = request["method"] not in ("item/tool/call", "mcpServer/elicitation/request")
        if has_plain_errors and self.rng.random() < 0.05:
            self.send({"id": rpc_id, "error": {"code": -32000, "message": nonce}})
        else:
            self.send({"id": rpc_id, "result": result_for(request["method"], nonce, self.rng)})

    def send_odd_line(self):
        """A line that is not a message of the protocol, on stdio only; it passes all the same."""
        nonce = self.nonce()
        self.send_line(bytes_of(self.rng.choice([
            f"label {nonce}", f'{{"broken":"{nonce}"', f'["batch","{nonce}"]', f'{{"spaced" : "{nonce}" }} ',
            f'{{"cr":"{nonce}"}}\r', f"\udcff\udcfe {nonce}", f'{{"n":1e999,"nonce":"{nonce}"}}',
            f'{{"method":"note","params":"{"y" * self.rng.choice([10, 70000, 300000])}","nonce":"{nonce}"}}'])))

    def wait_closed(self, timeout_s):
        self.reader.join(timeout_s)
        return not self.reader.is_alive()


def result_for(method, nonce, rng):
    if method.endswith("requestUserInput"):
        return {"answers": {"q": {"answers": [nonce]}}}
    if method == "mcpServer/elicitation/request":
        return {"action": rng.choice(["accept", "decline"]), "content": {}, "nonce": nonce}
    if method.endswith("requestApproval"):
        return {"decision": pick_decision(rng), "nonce": nonce}
    if method == "item/tool/call":
        return {"contentItems": [], "success": True, "nonce": nonce}
    return {"nonce": nonce}


def pick_decision(rng):
    return rng.choices(["accept", "decline", "acceptForSession", "cancel"], [10, 10, 4, 1])[0]
