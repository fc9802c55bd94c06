"""Drives the package `openai-codex`. The only argument is the server's executable.

Prints one line `[STREAM, MESSAGE]` for each message that the client saw.
"""

import os
import subprocess
import sys

from openai_codex import CodexConfig
from openai_codex.client import CodexClient

from told import tell


def decide(method, params):
    tell("asked", {"method": method, "params": params})
    return {"decision": "accept" if method == "item/commandExecution/requestApproval" else "decline"}


def turn(client, thread, says):
    subprocess.run(os.environ["BESIDE"], shell=True, check=True)
    started = client.turn_start(thread, says).turn.id
    client.register_turn_notifications(started)
    while True:
        notification = client.next_turn_notification(started)
        payload = notification.payload.model_dump(mode="json") if hasattr(notification.payload, "model_dump") else vars(notification.payload)
        item = payload.get("item_id") or (payload.get("item") or {}).get("id")
        tell(item or notification.method, {"method": notification.method, "payload": payload})
        if notification.method == "turn/completed":
            client.unregister_turn_notifications(started)
            return


with CodexClient(CodexConfig(codex_bin=sys.argv[1], cwd=os.getcwd()), approval_handler=decide) as client:
    tell("initialize", client.initialize().model_dump(mode="json"))
    started = client.thread_start({"cwd": os.getcwd(), "approvalPolicy": "on-request", "sandbox": "read-only"})
    tell("thread_start", started.model_dump(mode="json"))
    thread = started.thread.id
    for says in ["hello", "run it", "write it"]:
        turn(client, thread, says)
    tell("thread_read", client.thread_read(thread, include_turns=True).model_dump(mode="json"))
    tell("thread_list", client.thread_list({}).model_dump(mode="json"))
    tell("thread_resume", client.thread_resume(thread).model_dump(mode="json"))
    process = client._proc
tell("exit", process.returncode)
