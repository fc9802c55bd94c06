"""The workload of a fleet: three hosts, each a relay with an agent, one NATS server, and answers from a console."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

from checker.callers import key_of
from checker.logs import PATIENCE_S
from checker.nemesis import Nemesis
from checker.routes import Route
from checker.workloads import Relay, wait_for

HOSTS = ("h1", "h2", "h3")
USER = "ann"
NODE = """
server_name: %(node)s
listen: "127.0.0.1:%(port)d"
max_payload: 2MB
jetstream { store_dir: "%(folder)s/nats-data/%(node)s" }
%(cluster)s
accounts {
  STORE {
    jetstream: enabled
    users: [ { nkey: %(admin)s } ]
    exports: [
      { service: "cshim.ev.*.*", accounts: [ HOSTS ] }
      { service: "$KV.cshim_hosts.*", accounts: [ HOSTS ] }
      { service: "$KV.cshim_pending.*", accounts: [ HOSTS ] }
      { service: "$JS.API.DIRECT.GET.CSHIM_LATER", response: stream, accounts: [ HOSTS ] }
      { service: "cshim.later.*.*", accounts: [ CONSOLES ] }
      { service: "$JS.API.DIRECT.GET.CSHIM_EV", response: stream, accounts: [ CONSOLES ] }
      { service: "$JS.API.DIRECT.GET.KV_cshim_hosts", response: stream, accounts: [ CONSOLES ] }
      { service: "$JS.API.DIRECT.GET.KV_cshim_pending", response: stream, accounts: [ CONSOLES ] }
    ]
  }
  HOSTS {
    users: [ %(hosts)s ]
    imports: [
      { service: { account: STORE, subject: "cshim.ev.*.*" } }
      { service: { account: STORE, subject: "$KV.cshim_hosts.*" } }
      { service: { account: STORE, subject: "$KV.cshim_pending.*" } }
      { service: { account: STORE, subject: "$JS.API.DIRECT.GET.CSHIM_LATER" } }
    ]
    exports: [ { service: "cshim.req.*.*.*", accounts: [ CONSOLES ] } ]
  }
  CONSOLES {
    users: [ { nkey: %(ann)s, permissions: {
      publish: [ "cshim.req.*.read.ann", "cshim.req.*.write.ann", "cshim.later.*.ann", "$JS.API.DIRECT.GET.CSHIM_EV",
                 "$JS.API.DIRECT.GET.KV_cshim_hosts", "$JS.API.DIRECT.GET.KV_cshim_pending" ]
      subscribe: [ "_INBOX.ann.>" ]
    } } ]
    imports: [
      { service: { account: HOSTS, subject: "cshim.req.*.*.*" } }
      { service: { account: STORE, subject: "cshim.later.*.*" } }
      { service: { account: STORE, subject: "$JS.API.DIRECT.GET.CSHIM_EV" } }
      { service: { account: STORE, subject: "$JS.API.DIRECT.GET.KV_cshim_hosts" } }
      { service: { account: STORE, subject: "$JS.API.DIRECT.GET.KV_cshim_pending" } }
    ]
  }
}
"""
CLUSTER = """cluster { name: fleet, listen: "127.0.0.1:%d", no_advertise: true, routes: [ %s ] }"""
HOST = """{ nkey: %(key)s, permissions: {
      publish: [ "cshim.ev.%(name)s.*", "$KV.cshim_hosts.%(name)s", "$KV.cshim_pending.%(name)s",
                 "$JS.API.DIRECT.GET.CSHIM_LATER" ]
      subscribe: [ "cshim.req.%(name)s.>", "_INBOX.%(name)s.>" ]
      allow_responses: { max: 1, expires: "10s" }
    } }"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class FleetCallers:
    """The callers of all hosts. The tool is that of a console."""

    def __init__(self, fleet):
        self.fleet = fleet

    def pending(self):
        return self.gather(lambda part: part.callers.pending())

    def list_pending(self, label, since):
        return self.gather(lambda part: part.callers.list_pending(label, since))

    def gather(self, list_of):
        lists = [list_of(part) for part in self.fleet.parts]
        if None in lists:
            return None
        return [{**row, "part": number} for number, rows in enumerate(lists) for row in rows]

    def respond(self, row, label="race"):
        return self.fleet.parts[row["part"]].callers.respond(row, label)

    def respond_by_cli(self, row):
        callers, host = self.fleet.parts[row["part"]].callers, HOSTS[row["part"]]
        body, expected = callers.body_for(row)
        begun_at = time.monotonic()
        status, reply = self.fleet.console("respond", f"{host}/{row['request_id']}", "--json", json.dumps(body))
        callers.log.put("call", via="api", is_tool=True, who=f"fleet:{USER}@{host}", key=key_of(row), label="race",
                        request_id=row["request_id"], begun_at=begun_at, body=body, expected=expected, status=status,
                        reply=reply)


class Fleet:
    name = "fleet"
    nats = None  # the path of nats-server

    def __init__(self, folder, seed, binaries):
        self.folder = folder
        self.parts = []
        for name in HOSTS:
            os.makedirs(os.path.join(folder, name), mode=0o700)
            self.parts.append(Relay(os.path.join(folder, name), f"{seed}-{name}", binaries))
        self.rng, self.binary, self.faults = self.parts[0].rng, binaries[0], self.parts[0].faults
        self.callers, self.processes, self.session = FleetCallers(self), {}, self.parts[0].session
        # One server, or a cluster of three that can be divided.
        self.nodes = ["n1", "n2", "n3"] if self.parts[0].has_habit("cluster", 0.5) else ["n1"]
        self.ports = {node: free_port() for node in self.nodes}
        route_ports = {node: free_port() for node in self.nodes}
        self.routes = {(a, b): Route(route_ports[b]) for a in self.nodes for b in self.nodes if a != b}
        self.clusters = {node: CLUSTER % (route_ports[node], self.routes_of(node)) if self.routes else "" for node in self.nodes}

    def routes_of(self, node):
        return ", ".join(f'"nats://127.0.0.1:{route.port}"' for (a, _), route in self.routes.items() if a == node)

    def divide(self, node, is_open):
        """Cuts a server off from the others, or connects it again."""
        for pair, route in self.routes.items():
            if node in pair:
                route.set_open(is_open)

    def environment(self, part, user):
        url = ",".join(f"nats://127.0.0.1:{port}" for port in self.ports.values())
        return {**part.env, "CODEX_SHIM_FLEET_URL": url, "CODEX_SHIM_FLEET_USER": user,
                "CODEX_SHIM_FLEET_HOST": user, "CODEX_SHIM_FLEET_CREDS": os.path.join(self.folder, f"{user}.nk"),
                "CODEX_SHIM_FLEET_LEVEL": "full"}

    def fleet_tool(self, user, *arguments):
        try:
            done = subprocess.run([self.binary, "fleet", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  env=self.environment(self.parts[0], user), cwd=self.folder, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            return None, "timeout"
        try:
            return done.returncode, json.loads(done.stdout)
        except ValueError:
            return done.returncode, done.stdout + done.stderr

    def console(self, *arguments):
        return self.fleet_tool(USER, *arguments)

    def spawn(self, name, arguments, env):
        with open(os.path.join(self.folder, f"{name}.txt"), "ab") as output:
            self.processes[name] = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                                    env=env, cwd=self.folder)

    def start_node(self, node):
        self.spawn(node, [self.nats, "-c", os.path.join(self.folder, f"{node}.conf")], self.parts[0].env)

    def start_agent(self, number):
        self.spawn(HOSTS[number], [self.binary, "fleet", "agent"], self.environment(self.parts[number], HOSTS[number]))

    def start(self):
        keys = {name: str(self.fleet_tool(name, "key", f"{name}.nk")[1]).strip() for name in (*HOSTS, USER, "admin")}
        hosts = "\n".join(HOST % {"name": name, "key": keys[name]} for name in HOSTS)
        for node in self.nodes:
            with open(os.path.join(self.folder, f"{node}.conf"), "w") as file:
                file.write(NODE % {**keys, "hosts": hosts, "node": node, "port": self.ports[node], "folder": self.folder,
                                   "cluster": self.clusters[node]})
            self.start_node(node)
        set_up = ["check", "--set-up", "--replicas", str(len(self.nodes))]
        # A cluster elects a leader first.
        if not wait_for(lambda: self.fleet_tool("admin", *set_up)[0] == 0, pause_s=1):
            return False
        for number in range(len(HOSTS)):
            self.start_agent(number)
        is_up = all([part.start() for part in self.parts])
        return is_up and bool(wait_for(lambda: str(self.console("hosts")[1]).count("online") >= len(HOSTS), pause_s=1))

    def load_once(self):
        self.rng.choice(self.parts).load_once()

    def ask_last(self):
        for part in self.parts:
            part.ask_last()

    def open_clients(self):
        return [client for part in self.parts for client in part.open_clients()]

    def recover(self):
        return all([part.recover() for part in self.parts])

    def barrier(self):
        return all([part.barrier() for part in self.parts])

    def works(self):
        return all([part.works() for part in self.parts])

    @property
    def lacking(self):
        return "".join(part.lacking for part in self.parts)

    @property
    def never_listed(self):
        return set().union(*(part.never_listed for part in self.parts))

    def waiting(self):
        return set().union(*(part.waiting() for part in self.parts))

    def tool(self, *arguments):
        for part in self.parts:
            part.tool(*arguments)

    def close(self):
        for part in self.parts:
            part.faults.put("closed")

    def clean_up(self):
        for part in self.parts:
            part.clean_up()
        for route in self.routes.values():
            route.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        shutil.rmtree(os.path.join(self.folder, "nats-data"), ignore_errors=True)


class FleetNemesis(Nemesis):
    def __init__(self, workload):
        super().__init__(workload)
        self.faults = ["kill_nats", "pause_nats", "kill_agent", "kill_agent", "of_host", "of_host", "of_host"]
        self.faults += ["cut_node"] * 4 if workload.routes else []

    def begin(self, name):
        super().begin(name)
        self.has_struck = True

    def of_host(self):
        nemesis = Nemesis(self.rng.choice(self.workload.parts))
        is_over = nemesis.strike()
        self.done[-1], self.has_struck = nemesis.done[-1], nemesis.has_struck
        return is_over

    def kill_nats(self):
        node = self.rng.choice(self.workload.nodes)
        self.workload.processes[node].kill()
        self.workload.processes[node].wait()
        time.sleep(self.rng.choice([0, 1]))
        self.workload.start_node(node)
        return True

    def pause_nats(self):
        process = self.workload.processes[self.rng.choice(self.workload.nodes)]
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.choice([0.5, 2]))
        process.send_signal(signal.SIGCONT)
        return True

    def cut_node(self):
        """One server has no connection to the others for a while, the leader of a stream or not."""
        node = self.rng.choice(self.workload.nodes)
        self.workload.divide(node, False)
        time.sleep(self.rng.choice([0.5, 3, 8]))
        self.workload.divide(node, True)
        return True

    def kill_agent(self):
        number = self.rng.randrange(len(HOSTS))
        self.workload.processes[HOSTS[number]].kill()
        self.workload.processes[HOSTS[number]].wait()
        self.workload.start_agent(number)
        return True

    def stop(self, kind="stop_session"):
        stopped = []
        threads = [threading.Thread(target=lambda part=part: stopped.append(Nemesis(part).stop(kind)))
                   for part in self.workload.parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return all(stopped)
