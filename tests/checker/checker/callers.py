"""API callers: at the control socket, and by `codex-shim respond`. Each logs what it sent and every reply."""

import http.client
import json
import os
import re
import socket
import subprocess
import time

from checker.clients import pick_decision, result_for
from checker.logs import PATIENCE_S, Log

KEY = re.compile(r"K[0-9a-f]{6}-\d+")
SELF = "/sessions/self"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout_s):
        super().__init__("shim", timeout=timeout_s)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.path.realpath(self.path))


def http_call(path, method, target, body=None, headers=None, timeout_s=PATIENCE_S):
    """Status and document; None and the reason if there was no whole reply."""
    connection = UnixConnection(path, timeout_s)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, target, payload, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return None, f"{type(error).__name__}: {error}"
    finally:
        connection.close()


def key_of(row):
    found = KEY.search(json.dumps([row.get("item_id"), row.get("request_payload"), row.get("request_payload_json")]))
    return found and found.group()


class Callers:
    def __init__(self, folder, control_path, binary, env, cwd, rng):
        self.log = Log(os.path.join(folder, "callers.jsonl"))
        self.control_path, self.binary, self.env, self.cwd, self.rng = control_path, binary, env, cwd, rng
        self.count = 0

    def pending(self):
        """The pending requests, or None if the relay does not answer."""
        status, reply = http_call(self.control_path, "GET", SELF + "/codex-pending-requests")
        return reply["requests"] if status == 200 else None

    def list_pending(self, label, since):
        """As `pending`, and the log has the list. All that was sent before `since` has passed."""
        rows = self.pending()
        self.log.put("listed", label=label, since=since, keys=None if rows is None else [key_of(row) for row in rows])
        return rows

    def nonce(self):
        self.count += 1
        return f"a{os.getpid()}-{self.count}"

    def body_for(self, row):
        """A valid body for a request, and what the server must get if it wins."""
        method, nonce, rng = row["request_method"], self.nonce(), self.rng
        if method.endswith("requestUserInput"):
            return {"answers": {"q": nonce}}, {"answers": {"q": {"answers": [nonce]}}}
        if method.endswith("requestApproval") and rng.random() < 0.4:
            word = pick_decision(rng)
            body = {"decision": word}
            if word == "decline" and rng.random() < 0.3:
                body["reason"] = f"because {nonce}"
            return body, {"decision": word}
        result = result_for(method, nonce, rng)
        return {"result": result}, result

    def push_context(self):
        """A command that the next message will carry, so that some lines are changed on their way."""
        body = {"cmd": f"make {self.nonce()}", "exit_code": 2, "cwd": self.cwd, "output": "no rule to make target"}
        self.log.put("pushed", body=body)
        http_call(self.control_path, "POST", SELF + "/context", body)

    def post_input(self, thread_id, script):
        """A message to the model in a caller's name. While its server is gone, the relay waits for half a minute; the reply says nothing
        that is needed."""
        body = {"text": json.dumps({**script, "nonce": self.nonce()}), "thread_id": thread_id}
        self.log.put("posted", body=body)
        http_call(self.control_path, "POST", SELF + "/input", body, timeout_s=3)

    def respond(self, row, label="race"):
        body, expected = self.body_for(row)
        source = self.rng.choice(["api", "api", "tui", "web"])
        headers = {} if source == "api" else {"X-Codex-Shim-Source": source}
        begun_at = time.monotonic()
        target = f"{SELF}/codex-requests/{row['request_id']}/respond"
        status, reply = http_call(self.control_path, "POST", target, body, headers)
        self.log.put("call", via=source, who=str(os.getpid()), key=key_of(row), request_id=row["request_id"], label=label,
                     begun_at=begun_at, body=body, expected=expected, status=status, reply=reply)
        return status

    def respond_by_cli(self, row):
        body, expected = self.body_for(row)
        begun_at = time.monotonic()
        process = subprocess.Popen([self.binary, "respond", row["request_id"], "--json", json.dumps(body)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.env, cwd=self.cwd)
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        try:
            reply = json.loads(out)
        except ValueError:
            reply = out.decode("utf-8", "replace")
        self.log.put("call", via="cli", is_tool=True, who=str(process.pid), key=key_of(row), request_id=row["request_id"], label="race",
                     begun_at=begun_at, body=body, expected=expected, status=process.returncode, reply=reply,
                     stderr=err.decode("utf-8", "replace"))
