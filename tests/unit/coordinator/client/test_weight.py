"""What a reading of a home on this machine loads: a command makes one, and is to start fast."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from coordinator.home import Home

if TYPE_CHECKING:
    from pathlib import Path

UNNEEDED = [
    "chronicle.workspace.layer",
    "coordinator.client.run",
    "coordinator.operations.files",
    "coordinator.service",
    "coordinator.settings",
    "coordinator.streams.message_streams",
    "httpx",
    "podium.state.tracked",
    "pydantic",
    "structlog",
]
READS = f"""
import asyncio, sys
from coordinator.client import AsyncPodium
async def read():
    async with AsyncPodium(home=sys.argv[1]) as podium:
        print(await podium.pages().agents())
asyncio.run(read())
print([name for name in {UNNEEDED!r} if name in sys.modules])
"""


def test_a_list_of_agents_loads_neither_the_service_nor_workspaces(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    home.journal().close()
    done = subprocess.run([sys.executable, "-c", READS, home.path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["Page(items=[], next_cursor=None, remaining=0)", "[]"]
