"""The nemesis: faults, each with its time in the log of the nemesis."""

import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

from checker.callers import http_call
from checker.logs import PATIENCE_S
from checker.workloads import wait_for

# How long the load goes on beside one fault.
STEPS_MAX = 40


def ignore_sockets(folder, names):
    paths = {name: os.path.join(folder, name) for name in names}
    return [name for name, path in paths.items() if not (os.path.isfile(path) or os.path.isdir(path))]


class Nemesis:
    def __init__(self, workload, disk=None):
        self.workload, self.rng, self.disk = workload, workload.rng, disk
        self.faults = ["kill_relay", "kill_relay", "kill_server", "pause_relay", "pause_server", "drop_client", "upgrade"]
        self.faults += {"hub": ["hub_restart"] * 4, "serve": ["stop_and_start"]}.get(workload.name, [])
        self.faults += ["restore", "lock_ledger", "lock_ledger"] + (["full_disk"] * 2 if disk and disk.is_there else [])
        self.faults += ["slow_disk"] * 2 if disk and disk.can_be_slow else []
        # The names of the faults, those that found something to do, and whether the last one did.
        self.done, self.struck, self.has_struck = [], [], False

    def begin(self, name):
        self.done.append(name)
        self.has_struck = False

    def strike(self, name=None):
        """One fault, and what the world does after it; False if a part does not come back."""
        name = name or self.rng.choice(self.faults)
        self.begin(name)
        if self.rng.random() < 0.5:
            self.workload.barrier()
        is_over = getattr(self, name)() and wait_for(lambda: self.workload.recover() and self.workload.barrier(), pause_s=0.2)
        self.struck += self.done[-1:] if self.has_struck else []
        if is_over:
            self.workload.faults.put("over")
        return bool(is_over)

    def strike_beside_load(self, name, put_load):
        """As `strike`, while the load goes on in another thread."""
        is_over = threading.Event()

        def keep_on():
            for _ in range(STEPS_MAX):
                if is_over.is_set():
                    return
                put_load()

        load = threading.Thread(target=keep_on, daemon=True)
        load.start()
        try:
            return self.strike(name)
        finally:
            is_over.set()
            load.join(2 * PATIENCE_S)

    def log(self, kind, begun_at, **members):
        self.workload.faults.put("fault", kind=kind, begun_at=begun_at, **members)
        self.has_struck = True

    def kill(self, kind, pid):
        begun_at = time.monotonic()
        try:
            if pid:
                os.kill(pid, signal.SIGKILL)
                self.log(kind, begun_at, pid=pid)
        except ProcessLookupError:
            pass
        if self.workload.process:
            try:
                self.workload.process.wait(0.5)
            except subprocess.TimeoutExpired:
                pass
        return True

    def kill_relay(self):
        return self.kill("kill_relay", self.workload.relay_pid())

    def kill_server(self):
        return self.kill("kill_server", self.workload.server_pid())

    def pause(self, target, pid):
        begun_at = time.monotonic()
        if pid:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(self.rng.choice([0.1, 0.4, 1.2]))
            os.kill(pid, signal.SIGCONT)
            self.log("stop", begun_at, target=target)
        return True

    def pause_relay(self):
        return self.pause("relay", self.workload.relay_pid())

    def pause_server(self):
        return self.pause("server", self.workload.server_pid())

    def drop_client(self):
        begun_at = time.monotonic()
        if self.workload.open_clients():
            self.workload.drop_client()
            self.log("drop_client", begun_at)
        return True

    def stop_and_start(self):
        begun_at = time.monotonic()
        status, _ = http_call(self.workload.control_path, "POST", "/sessions/self/stop", {})
        self.log("stop_session", begun_at)
        self.has_struck = status is not None and status < 300
        time.sleep(0.3)
        http_call(self.workload.control_path, "POST", "/sessions/self/start", {})
        return True

    def hub_restart(self):
        return self.restart_hub(self.workload.binary if self.workload.has_older else self.rng.choice(self.workload.binaries))

    def restart_hub(self, binary):
        begun_at = time.monotonic()
        went_on, output = self.workload.restart(binary)
        self.log("hub_restart" if went_on else "kill_relay", begun_at, output=output)
        self.has_struck = went_on
        return True

    def upgrade(self):
        """The second program takes the place of the first: a hub becomes it, others stop and start with it."""
        if self.workload.name == "hub":
            return self.restart_hub(self.workload.binaries[1])
        self.workload.binary = self.workload.callers.binary = self.workload.binaries[1]
        return self.stop() and self.workload.start()

    def stop(self, kind="stop_session"):
        begun_at = time.monotonic()
        is_stopped = self.workload.stop()
        self.log(kind, begun_at)
        return is_stopped

    def restore(self):
        """The folder of the session is copied while stopped, and a later stop puts the copy in its place."""
        workload, copy = self.workload, os.path.join(self.workload.folder, "copy")
        if not self.stop():
            return False
        copied_at = time.monotonic()
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(workload.session_folder, copy, symlinks=True, ignore=ignore_sockets)
        if not workload.start():
            return False
        time.sleep(1)
        if not self.stop():
            return False
        shutil.rmtree(workload.session_folder)
        shutil.move(copy, workload.session_folder)
        self.log("restore", copied_at)
        return workload.start()

    def lock_ledger(self):
        """Another program holds the lock of the ledger, so that nothing can be stored meanwhile."""
        path = os.path.join(self.workload.session_folder, "ledger.db")
        open_requests = self.workload.ask_some()
        if not os.path.exists(path) or not self.workload.barrier():
            return True
        ledger = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
        try:
            ledger.execute("BEGIN IMMEDIATE")
            begun_at = time.monotonic()
            for client, rpc_id in open_requests:
                client.answer(rpc_id)
            self.workload.ask_some(0)
            time.sleep(self.rng.choice([0.1, 0.15, 0.2, 0.6, 2.5]))
            until = time.monotonic()
            ledger.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True  # it was locked all the time
        finally:
            ledger.close()
        self.log("lock_ledger", begun_at, until=until)
        return True

    def slow_disk(self):
        """The disk takes a few writes each second, so that a commit takes up to seconds."""
        begun_at = time.monotonic()
        if self.disk.slow_down(self.rng.choice([2, 5, 20])):
            self.workload.ask_some()
            time.sleep(self.rng.choice([0.5, 2, 4]))
            self.disk.slow_down(0)
            self.log("slow_disk", begun_at)
        return True

    def full_disk(self):
        begun_at, path = time.monotonic(), os.path.join(self.workload.home, "filler")
        size = 1 << 20
        with open(path, "wb", buffering=0) as file:
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 4
        time.sleep(self.rng.choice([0.3, 1.0]))
        os.unlink(path)
        self.log("full_disk", begun_at)
        return True
