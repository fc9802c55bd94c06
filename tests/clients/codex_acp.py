"""Drives `@agentclientprotocol/codex-acp`, itself a client of codex's app-server, as an editor would: in lines of ACP.

The only argument is the server's executable. Prints one line `[STREAM, MESSAGE]` for each message that the client saw.
"""

import json
import os
import subprocess
import sys

from told import tell

ADAPTER = os.path.join(os.environ["NODE_MODULES"], ".bin", "codex-acp")


class Editor:
    def __init__(self, server):
        env = {**os.environ, "CODEX_PATH": server, "INITIAL_AGENT_MODE": "read-only", "NO_BROWSER": "1"}
        self.agent = subprocess.Popen([ADAPTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        self.last_id = 0

    def write(self, message):
        self.agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.agent.stdin.flush()

    def call(self, method, params):
        self.last_id += 1
        self.write({"id": self.last_id, "method": method, "params": params})
        for line in self.agent.stdout:
            message = json.loads(line)
            if "method" not in message:
                assert message["id"] == self.last_id, message
                return message["result"]
            self.told(message)
        raise EOFError(method)

    def told(self, message):
        params = message["params"]
        if message["method"] == "session/request_permission":
            tell("asked", params)
            wanted = "allow_once" if params["toolCall"].get("kind") == "execute" else "reject_once"
            option = next(option for option in params["options"] if option["kind"] == wanted)
            outcome = {"outcome": "selected", "optionId": option["optionId"]}
            self.write({"id": message["id"], "result": {"outcome": outcome}})
        else:
            update = params.get("update", {})
            tell(update.get("toolCallId") or update.get("sessionUpdate") or message["method"], params)

    def end(self):
        self.agent.stdin.close()
        for line in self.agent.stdout:
            self.told(json.loads(line))
        return self.agent.wait()


editor = Editor(sys.argv[1])
tell("initialize", editor.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}}))
session = editor.call("session/new", {"cwd": os.getcwd(), "mcpServers": []})
tell("new", session)
for says in ["hello", "run it", "write it"]:
    subprocess.run(os.environ["BESIDE"], shell=True, check=True)
    prompt = [{"type": "text", "text": says}]
    tell("prompt", editor.call("session/prompt", {"sessionId": session["sessionId"], "prompt": prompt}))
tell("exit", editor.end())
