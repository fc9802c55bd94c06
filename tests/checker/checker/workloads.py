"""Workloads: a relay on stdio, `serve`, a hub with 1 to 20 clients. Each can start, stop, and name its parts."""

import datetime
import glob
import json
import os
import random
import signal
import socket
import struct
import subprocess
import threading
import time

from checker.callers import Callers, http_call, key_of
from checker.clients import Attached, Client, HubSocket, Stdio
from checker.logs import PATIENCE_S, Log, read_log

FAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_codex.py")
# What has not come after so many calls that were answered meanwhile, and after so long, does not come.
STEPS_ENOUGH, SETTLE_S = 200, 60
KINDS = ["command"] * 6 + ["question"] * 3 + ["file"] * 2 + ["elicitation", "unknown", "secret"]


def wait_for(condition, timeout_s=PATIENCE_S, pause_s=0.05):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(pause_s)
    return value


def has_come(workload, condition):
    """Whether something came to pass that all has been done for. False only once codex-shim has since worked for every client again and
    again, which no busy machine can feign; None if it did not get to that in time."""
    begun_at, steps = time.monotonic(), 0
    while not condition():
        waited_s = time.monotonic() - begun_at
        if steps >= STEPS_ENOUGH and waited_s > SETTLE_S:
            return False
        if workload.works():
            steps += 1
        elif waited_s > PATIENCE_S:
            return None
        time.sleep(0.1)
    return True


class AtServers:
    """What the logs of the servers say so far about each request: it is open, or has an answer, or is withdrawn."""

    def __init__(self, folder):
        self.folder, self.read_bytes, self.open, self.answered, self.lock = folder, {}, {}, set(), threading.Lock()

    def look(self):
        with self.lock:
            for path in glob.glob(os.path.join(self.folder, "server-*.jsonl")):
                with open(path, "rb") as file:
                    file.seek(self.read_bytes.get(path, 0))
                    data = file.read()
                end = data.rfind(b"\n") + 1
                self.read_bytes[path] = self.read_bytes.get(path, 0) + end
                for line in data[:end].split(b"\n"):
                    if b'"ev": "ask"' in line or b'"ev": "answer"' in line or b'"ev": "withdraw"' in line:
                        self.take(path, json.loads(line))
            return self

    def take(self, path, event):
        if event["ev"] == "ask" and not event["again"]:
            self.open[event["key"]] = (path, event["kind"])
        elif event["key"] and event["ev"] != "ask":
            self.open.pop(event["key"], None)
            if event["ev"] == "answer":
                self.answered.add(event["key"])

    def waiting(self, pid_path):
        """The requests, for others than the client alone, that wait at the server with this log."""
        return {key for key, (path, kind) in self.open.items() if path == pid_path and kind != "tool"}


class Workload:
    """What all workloads share: folders, clients, callers, and the load."""

    name, session, stdio_lines = None, "s", True
    habits = set()  # those of all rounds: "expiry", "hold", "rule", "no_flags"
    has_older = False  # whether the first of the two programs is an older one, to which nothing goes back

    def __init__(self, folder, seed, binaries):
        self.folder, self.rng, self.binaries = folder, random.Random(f"{seed}/{self.name}"), binaries
        self.binary = binaries[0]
        self.logs, self.home = os.path.join(folder, "logs"), os.path.join(folder, "home")
        self.cwd = os.path.join(folder, "work")
        for path in (self.logs, self.cwd, os.path.join(folder, "codex"), self.home):
            os.makedirs(path, mode=0o700, exist_ok=True)
        self.env = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": folder, "CODEX_HOME": os.path.join(folder, "codex"),
                    "CODEX_SHIM_HOME": self.home, "CODEX_SHIM_CODEX": FAKE, "CHECKER_LOGS": self.logs, "LANG": "C.UTF-8"}
        self.faults = Log(os.path.join(self.logs, "nemesis.jsonl"))
        self.faults.put("begin")
        self.session_folder = os.path.join(self.home, "sessions", self.session)
        self.control_path = os.path.join(self.session_folder, "control.sock")
        self.callers = Callers(self.logs, self.control_path, self.binary, self.env, self.cwd, self.rng)
        self.at_servers = AtServers(self.logs)
        self.process, self.clients, self.client_count, self.life_count = None, [], 0, 0
        self.thread_ids, self.lock = [], threading.RLock()
        self.never_listed, self.lacking = set(), ""
        self.kinds = list(KINDS)
        self.parts = [self]
        self.configure()

    def close(self):
        self.faults.put("closed")

    def has_habit(self, habit, chance):
        return self.rng.random() < chance or habit in self.habits

    def configure(self):
        text = ""
        if self.has_habit("no_flags", 0.15):
            self.env["CHECKER_NO_FLAGS"] = "1"
        if self.has_habit("rule", 0.4):
            self.kinds.append("ruled")
            text += '[[rules]]\nname = "forbidden"\nmatch = { kind = "command", argv_prefix = ["forbidden"] }\naction = "decline"\n'
        if self.has_habit("expiry", 0.2):
            self.faults.put("expiry")
            text = '[expiry]\nrequest_approval = "2s"\n\n' + text
        if self.has_habit("hold", 0.1):
            self.faults.put("hold")
            text = "hold = true\n\n" + text
        with open(os.path.join(self.home, "config.toml"), "w") as file:
            file.write(text)

    # Parts.

    def new_client(self, kind, transport_of):
        with self.lock:
            self.client_count += 1
            client = Client(f"{self.name}{self.client_count}", self.logs, self.rng, kind, self.life_count,
                            self.answer_at_once)
        try:
            client.begin(transport_of())
        except OSError as error:
            client.log.put("end", reason=str(error))
            client.is_open = False
            return None
        if client.introduce():
            self.clients.append(client)
            return client
        client.transport.abort()
        return None

    def resume_threads(self, client, thread_ids):
        """Threads that the server does not know any more are forgotten."""
        for thread_id in list(thread_ids):
            if not client.resume(thread_id) and client.is_open and thread_id in self.thread_ids:
                self.thread_ids.remove(thread_id)

    def open_clients(self):
        return [client for client in self.clients if client.is_open]

    def server_pid(self):
        return self.running_server()[0]

    def running_server(self):
        """The process of the newest server that runs, and its log."""
        for path in sorted(glob.glob(os.path.join(self.logs, "server-*.jsonl")), reverse=True):
            with open(path, "rb") as file:
                pid = json.loads(file.readline())["pid"]
            if is_running(pid):
                return pid, path
        return None, None

    def waiting(self):
        """The requests that wait at the server."""
        return self.at_servers.look().waiting(self.running_server()[1])

    def barrier(self):
        """Waits until all that was sent before has passed: every client has had an answer, and then the ledger; False if not."""
        since = time.monotonic()
        clients = self.open_clients()
        passed = [client for client in clients if client.has_passed()]
        if not passed or any(client.is_open for client in clients if client not in passed):
            return self.lacks("a reply to each client")
        if not wait_for(lambda: self.callers.pending() is not None):
            return self.lacks("a list of the pending requests")
        # What the hub sends on its own connection follows no line of a client.
        answered = self.unlisted(self.waiting()) if self.name == "hub" else set()
        if has_come(self, lambda: not answered & self.unlisted(answered)) is None:
            return self.lacks(f"an answer to {sorted(answered)}, which are not pending any more, at the server")
        self.never_listed |= answered & self.unlisted(answered)
        self.faults.put("barrier", since=since)
        return True

    def unlisted(self, keys):
        """Those of these requests that wait at the server, and are not listed as pending."""
        rows = self.callers.pending()
        return (keys - {key_of(row) for row in rows or []} - self.never_listed) & self.waiting()

    def works(self):
        """Has every client get an answer to a call, and the ledger list the requests; False if one of them does not come."""
        clients = self.open_clients()
        return bool(clients) and all([client.has_passed() for client in clients]) and self.callers.pending() is not None

    def lacks(self, what):
        """False; and the report says for what it waited in vain."""
        self.lacking = what
        return False

    def relay_pid(self):
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(PATIENCE_S)
                sock.connect(os.path.realpath(self.control_path))
                return struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        except OSError:
            return self.process.pid if self.process and self.process.poll() is None else None

    def is_healthy(self):
        return http_call(self.control_path, "GET", "/healthz")[0] == 200

    def has_ended(self, timeout_s):
        """Whether the process that was started last has ended; the log has its status."""
        try:
            self.faults.put("exit", pid=self.process.pid, status=self.process.wait(timeout_s))
            return True
        except subprocess.TimeoutExpired:
            return False

    def spawn(self, *arguments):
        with open(os.path.join(self.logs, "stderr.txt"), "ab") as stderr:
            return subprocess.Popen([self.binary, *arguments], stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr,
                                    env=self.env, cwd=self.cwd)

    def tool(self, *arguments, timeout_s=PATIENCE_S):
        try:
            done = subprocess.run([self.binary, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env=self.env, cwd=self.cwd, timeout=timeout_s)
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            return None, "timeout"

    # Load.

    def script(self):
        rng = self.rng
        script = {"asks": rng.choices(self.kinds, k=rng.choice([0, 1, 1, 2, 3, 5])), "notes": rng.choice([0, 3, 10, 40]),
                  "gap_ms": rng.choice([0, 1, 5]), "note_bytes": rng.choice([10, 10, 10, 5000, 90000])}
        if rng.random() < 0.12:
            script["withdraw_ms"] = rng.choice([1, 20, 100, 300])
        if rng.random() < 0.08:
            script["repeat_ms"] = rng.choice([1, 20, 100, 300])
        if self.stdio_lines and rng.random() < 0.2:
            script["odd_lines"] = ["label ", '{"broken":"', '[1,"', "\udcff\udcfe ", '{"n":1e999} ']
        return script

    def load_once(self):
        clients = [client for client in self.open_clients() if client.thread_ids]
        if not clients:
            return
        client = self.rng.choice(clients)
        if self.rng.random() < 0.1:
            self.callers.push_context()
        client.start_turn(self.rng.choice(client.thread_ids), self.script())
        if self.stdio_lines and self.rng.random() < 0.1:
            client.send_odd_line()
        if self.rng.random() < 0.015:
            client.call("turn/interrupt", {"threadId": self.rng.choice(client.thread_ids)})

    def ask_some(self, timeout_s=3):
        """Has a request asked in a thread of some clients; returns those that were seen in time, each with its client."""
        seen = []
        for client in self.open_clients()[:3]:
            if client.thread_ids:
                asked = client.asked_count
                client.start_turn(client.thread_ids[0], {"asks": self.rng.choices(self.kinds, k=2)})
                wait_for(lambda: client.asked_count > asked or not client.is_open, timeout_s)
                seen += [(client, rpc_id) for rpc_id, request in list(client.requests.items())[-2:]
                         if rpc_id not in client.resolved and request["method"] != "item/tool/call"]
        return seen

    def ask_last(self):
        """Requests that nobody answers before the end. One that a client answers at once may end the turn before the others."""
        for client in self.open_clients()[:3]:
            for thread_id in client.thread_ids[:1]:
                client.call("turn/interrupt", {"threadId": thread_id}, PATIENCE_S)
                asked = client.asked_count
                client.start_turn(thread_id, {"asks": self.rng.choices(self.kinds, k=3), "gap_ms": 2})
                wait_for(lambda: client.asked_count >= asked + 3 or not client.is_open, 3)

    def answer_at_once(self, client, request):
        """Some requests are answered by the client that reads them, before any caller can know of them."""
        if request["method"] == "item/tool/call" or self.rng.random() < 0.15:
            client.answer(request["id"])

    def clean_up(self):
        for path in glob.glob(os.path.join(self.logs, "server-*.jsonl")):
            pid = read_log(path)[0]["pid"]
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        pid = self.relay_pid()
        if pid and os.path.realpath(f"/proc/{pid}/exe").removesuffix(" (deleted)") in self.binaries:
            os.kill(pid, signal.SIGKILL)
        if self.process:
            self.process.kill()
            self.process.wait()


def is_running(pid):
    """Whether the process is a server of ours that has not ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return FAKE.encode() in file.read()
    except OSError:
        return False


class Relay(Workload):
    """A client on the stdio of `codex-shim app-server`."""

    name = "relay"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.env["CODEX_SHIM_SESSION"] = self.session
        self.kinds.append("tool")

    def start(self):
        self.life_count += 1
        transport = None

        def begin():
            nonlocal transport
            transport = Stdio([self.binary, "app-server"], self.env, self.cwd, os.path.join(self.logs, "stderr.txt"))
            self.process = transport.process
            return transport

        client = self.new_client("stdio", begin)
        return bool(client) and client.start_thread(self.cwd)

    def drop_client(self):
        for client in self.open_clients():
            client.transport.abort()

    def stop(self):
        for client in self.open_clients():
            client.transport.close_input()
        return self.wait_end(PATIENCE_S)

    def wait_end(self, timeout_s):
        if not self.has_ended(timeout_s):
            return False
        return all([client.wait_closed(PATIENCE_S) for client in self.clients])

    def recover(self):
        """After a fault: a relay whose part has died ends; the next one begins."""
        if self.wait_end(0.2) or not self.open_clients():
            return self.wait_end(PATIENCE_S) and self.start()
        return True


class Serve(Workload):
    """`codex-shim serve`, with a client that attaches and leaves."""

    name = "serve"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kinds.append("tool")

    def start(self):
        self.life_count += 1
        self.process = self.spawn("serve", self.session)
        return bool(wait_for(self.is_healthy) and wait_for(self.is_attached, pause_s=0.2))

    def is_attached(self):
        """Whether there is a client; the load may have attached one, and there is no place for a second one."""
        return bool(self.open_clients()) or self.attach()

    def attach(self):
        client = self.new_client("attached", lambda: Attached(self.control_path))
        if client is None:
            return False
        self.resume_threads(client, self.thread_ids)
        if not client.thread_ids:
            client.start_thread(self.cwd)
        self.thread_ids = list(client.thread_ids)
        return bool(client.thread_ids)

    def load_once(self):
        if self.rng.random() < 0.06:
            for client in self.open_clients():
                client.transport.close_input()
                client.wait_closed(PATIENCE_S)
        elif not self.open_clients() and self.rng.random() < 0.5:
            self.attach()
        elif not self.open_clients() and self.thread_ids:
            self.callers.post_input(self.thread_ids[0], self.script())
        super().load_once()

    def drop_client(self):
        for client in self.open_clients():
            client.transport.abort()

    def stop(self):
        for client in self.open_clients():
            client.transport.close_input()
        if self.process.poll() is None:
            self.process.terminate()
        return self.has_ended(PATIENCE_S)

    def recover(self):
        if self.has_ended(0):
            return self.start()
        time.sleep(0.3)
        return bool(wait_for(self.is_attached, pause_s=0.3))


class Hub(Workload):
    """A hub with 1 to 20 clients, which share threads."""

    name, stdio_lines = "hub", False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.size = self.rng.choice([1, 2, 3, 5, 8, 20])

    def options(self):
        return ["--session", self.session, "--no-default-socket"]

    def start(self):
        self.life_count += 1
        self.process = self.spawn("hub", *self.options())
        return self.connect_clients()

    def connect_clients(self):
        if not wait_for(self.is_healthy):
            return False
        for _ in range(self.size - len(self.open_clients())):
            self.join()
        return bool(self.open_clients())

    def join(self):
        path = os.path.join(self.session_folder, "codex.sock")
        client = wait_for(lambda: self.new_client("hub", lambda: HubSocket(path)), pause_s=0.2)
        if client is None:
            return
        self.resume_threads(client, self.rng.sample(self.thread_ids, min(len(self.thread_ids), self.rng.choice([1, 2, 3]))))
        if not client.thread_ids or (len(self.thread_ids) < 4 and self.rng.random() < 0.3):
            client.start_thread(self.cwd)
        self.thread_ids = sorted({*self.thread_ids, *client.thread_ids})

    def drop_client(self):
        clients = self.open_clients()
        if clients:
            self.rng.choice(clients).transport.abort()

    def restart(self, binary):
        """`hub restart` with this program; says whether the hub went on."""
        self.binary = self.callers.binary = binary
        status, output = self.tool("hub", "restart", *self.options())
        return status == 0 and "goes on" in output, output

    def stop(self):
        status, _ = self.tool("hub", "stop", "--session", self.session, "--yes")
        for client in self.clients:
            client.wait_closed(PATIENCE_S)
        if self.process and not self.has_ended(PATIENCE_S):
            return False
        self.thread_ids = []
        return status == 0

    def recover(self):
        time.sleep(0.3)
        if self.relay_pid() is None:
            return self.start()
        return bool(wait_for(lambda: self.server_pid() and self.connect_clients(), pause_s=0.3))


class Approver(threading.Thread):
    """Watches the pending requests, and plans for each who answers it when."""

    def __init__(self, workload):
        super().__init__(daemon=True)
        self.workload, self.rng, self.is_stopped, self.seen, self.actions = workload, workload.rng, False, {}, []

    def run(self):
        while not self.is_stopped:
            for row in self.workload.callers.pending() or []:
                if row["request_id"] not in self.seen:
                    self.answer_namesakes(row)
                    self.seen[row["request_id"]] = row
                    for delay_ms, action in self.plan(row):
                        self.begin(delay_ms, action)
            if self.seen and self.rng.random() < 0.05:
                # Most of these have ended, some of them with their server.
                row = self.rng.choice(list(self.seen.values()))
                self.begin(0, lambda row=row: self.workload.callers.respond(row))
            time.sleep(0.03)

    def answer_namesakes(self, row):
        """Answers a request of an earlier server that had the number of this one, which waits."""
        earlier = [each for each in self.seen.values() if each["rpc_request_id"] == row["rpc_request_id"]]
        if earlier and self.rng.random() < 0.5:
            self.begin(0, lambda: self.workload.callers.respond(earlier[-1]))

    def begin(self, delay_ms, action):
        def act():
            time.sleep(delay_ms / 1000)
            action()

        thread = threading.Thread(target=act, daemon=True)
        self.actions.append(thread)
        thread.start()

    def plan(self, row):
        rng, callers = self.rng, self.workload.callers
        api = lambda: callers.respond(row)
        cli = lambda: callers.respond_by_cli(row)
        client = lambda: self.answer_by_client(row)
        jitter = lambda: rng.choice([0, 0, 0, 1, 2, 5, 20])
        if row.get("expires_at") and rng.random() < 0.5:
            # Answers that race with the expiry.
            expires_ms = (datetime.datetime.fromisoformat(row["expires_at"].replace("Z", "+00:00")).timestamp() - time.time()) * 1e3
            return [(max(0, expires_ms + rng.uniform(-10, 25)), actor) for actor in (client, client, client, api)]
        draw, delay_ms = rng.random(), rng.choice([0, 5, 50, 200])
        if draw < 0.2:
            return []
        if draw < 0.3:
            return [(delay_ms, client)]
        if draw < 0.4:
            return [(delay_ms, api)]
        if draw < 0.45:
            return [(delay_ms, cli)]
        if draw < 0.55:
            return [(delay_ms, api), (delay_ms + 100, client)]
        if draw < 0.65:
            return [(delay_ms, client), (delay_ms + 100, api)]
        actors = [client, client, api] if draw < 0.8 else [client, api, api]
        plan = [(delay_ms + jitter(), actor) for actor in actors]
        return plan + ([(max(0, delay_ms - 30), cli)] if rng.random() < 0.2 else [])

    def answer_by_client(self, row):
        key, rpc_id = key_of(row), row["rpc_request_id"]
        holders = [client for client in self.workload.open_clients()
                   if key_of({"request_payload": client.requests.get(rpc_id)}) == key]
        if holders:
            self.rng.choice(holders).answer(rpc_id)

    def finish(self):
        """Waits for all callers: no answer may come after the logs are read."""
        self.is_stopped = True
        self.join(2 * PATIENCE_S)
        for action in self.actions:
            action.join(2 * PATIENCE_S)
        return not any(thread.is_alive() for thread in [self, *self.actions])


WORKLOADS = {each.name: each for each in (Relay, Serve, Hub)}
