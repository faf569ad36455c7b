"""A program that sends messages to clerks through gateways, and may be killed at any time.

``python -m tests.e2e.chaos.sender URL,… NAME DIRECTORY AGENT …``: several messages at a time. It writes a line to
``acknowledged`` for each message that a gateway has accepted, and to ``answered`` for each answer, and repeats
under the same idempotency key what failed, at the next gateway. It ends when there is a file ``enough``.

Whoever touches a file ``fault`` before each fault gets load when it matters: some seconds later it sends little.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.client import AsyncPodium, ClientError
from tests.e2e.agents.clerks import note

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_A_TIME = 8
RECONNECT_S = 5.0
AGAIN_S = 0.2
LOAD_S = 3.0
"""How long after a fault all senders send without a pause."""
PAUSE_S = 2.0
"""Of each sender between messages afterwards."""


async def send(clients: Sequence[AsyncPodium], agent: str, number: str, writes: bool, directory: Path) -> None:
    """Send one message until it is answered."""
    message = {"number": number, "writes": writes, "notes": str(directory / "notes")}
    acknowledged = False
    for client in itertools.cycle(clients):
        try:
            async with await client.stream(agent, message, idempotency_key=number) as run:
                if not acknowledged:
                    note(str(directory / "acknowledged"), f"{agent} {number} {run.message_id}")
                    acknowledged = True
                answer = await run.answer()
        except ClientError as error:
            note(str(directory / "errors"), f"{number} {type(error).__name__}: {error}")
            await asyncio.sleep(AGAIN_S)
        else:
            assert answer.data["number"] == number, (number, answer.data)
            note(str(directory / "answered"), f"{agent} {number}")
            return


def rests(directory: Path) -> bool:
    """Whether the last fault is some time ago."""
    fault = directory / "fault"
    return fault.exists() and time.time() > fault.stat().st_mtime + LOAD_S


async def main(urls: str, name: str, directory: Path, agents: list[str]) -> None:
    """Send until it is enough."""
    numbers = itertools.count()

    async def go_on(clients: Sequence[AsyncPodium]) -> None:
        while not (directory / "enough").exists():
            number = next(numbers)
            await send(clients, agents[number % len(agents)], f"{name}-{number}", number % 3 == 0, directory)
            if rests(directory):
                await asyncio.sleep(PAUSE_S)

    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(AsyncPodium(url=url, reconnect_s=RECONNECT_S)) for url in urls.split(",")
        ]
        async with asyncio.TaskGroup() as tasks:
            for turn in range(AT_A_TIME):
                first = turn % len(clients)
                tasks.create_task(go_on([*clients[first:], *clients[:first]]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:]))
