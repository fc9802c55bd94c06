"""Drives the package `codex-app-server-sdk`. The only argument is the server's executable.

Prints one line `[STREAM, MESSAGE]` for each message that the client saw.
"""

import asyncio
import os
import subprocess
import sys
from dataclasses import asdict, is_dataclass

from codex_app_server_sdk import CodexClient, ThreadConfig

from told import tell


def plain(seen):
    if hasattr(seen, "model_dump"):
        return seen.model_dump(mode="json")
    return asdict(seen) if is_dataclass(seen) else seen


async def decide(request):
    tell("asked", plain(request))
    return "accept" if "command" in type(request).__name__.lower() else "decline"


async def main():
    async with CodexClient.connect_stdio(command=[sys.argv[1], "app-server"]) as client:
        client.set_approval_handler(decide)
        tell("initialize", plain(await client.initialize()))
        config = ThreadConfig(cwd=os.getcwd(), approval_policy="on-request", sandbox="read-only")
        thread = await client.start_thread(config)
        for says in ["hello", "run it", "write it"]:
            subprocess.run(os.environ["BESIDE"], shell=True, check=True)
            async for step in thread.chat(says):
                tell(step.item_id or "steps", plain(step))
        tell("read", plain(await thread.read(include_turns=True)))
        tell("list", plain(await client.list_threads()))
        subprocess.run(os.environ["BESIDE"], shell=True, check=True)
        tell("chat_once", (await thread.chat_once("once more")).final_text)


asyncio.run(main())
