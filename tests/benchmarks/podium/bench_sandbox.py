"""A command in a sandbox against the same one as a plain child of asyncio, by turns; medians of the rounds.

``sh -c echo`` is the least that there is: its ratio is all of the sandbox's own cost. The other one takes as long as
the shortest commands that agents run, a start of Python.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from podium.sandbox.on_rung import Stream, run_on
from podium.sandbox.policy import Policy, Rung
from podium.sandbox.probe import probe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.__main__ import Row

ROUNDS: Final = 40
COMMANDS: Final = {
    "sh -c echo": ("/bin/sh", "-c", "echo done"),
    "python -c print": (sys.executable, "-c", "print('done')"),
}
TARGETS: Final[dict[Rung, str]] = {"none": "", "landlock": "<= 1.5", "bubblewrap": "<= 8"}


def run() -> list[Row]:
    """Measure and return the rows of the rungs that work here."""
    return asyncio.run(_measured())


async def _measured() -> list[Row]:
    rungs = [rung for rung, why_not in (await probe()).items() if why_not is None]
    return [await _compared(name, command, rung) for name, command in COMMANDS.items() for rung in rungs]


async def _compared(name: str, command: Sequence[str], rung: Rung) -> Row:
    plain, sandboxed = list[float](), list[float]()
    with tempfile.TemporaryDirectory(prefix="podium-bench-") as directory:
        readable = tuple({Path(sys.base_prefix), Path(sys.prefix)})
        policy = Policy(writable=(Path(directory),), readable=readable, at_least="none")
        await _sandboxed_s(command, rung, policy)  # supervisors prepare the next command as the last one was
        for _ in range(ROUNDS):
            plain.append(await _plain_s(command, directory))
            sandboxed.append(await _sandboxed_s(command, rung, policy))
    return {
        "name": f"{name} in a sandbox: {rung}",
        "value": median(sandboxed) / median(plain),
        "unit": "x",
        "target": TARGETS[rung],
        "floor": f"the same as a child of asyncio, {median(plain) * 1e3:.1f} ms",
    }


async def _plain_s(command: Sequence[str], directory: str) -> float:
    began_s = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, cwd=directory, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output == b"done\n"
    return time.perf_counter() - began_s


async def _sandboxed_s(command: Sequence[str], rung: Rung, policy: Policy) -> float:
    output = bytearray()

    async def keep(_: Stream, piece: bytes) -> None:
        output.extend(piece)

    began_s = time.perf_counter()
    await run_on(rung, command, policy, on_output=keep)
    took_s = time.perf_counter() - began_s
    assert output == b"done\n", output
    return took_s
