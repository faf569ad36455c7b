"""Inspecting an agent's class once for as long as a home's service runs and the class's sources stay as they are.

An inspection takes a process that imports the agent's code, which is most of the time of a command that sends one
message to a running service. What it found is kept in the service's directory and goes with it. A result that is out of
date does no harm: the agent's host imports the code again, and its errors reach the client as well.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from podium.agent.inspect import AgentInfo, inspect_agent
from podium.agent.spec import parse_spec

if TYPE_CHECKING:
    from coordinator.home import Home

__all__ = ["inspect_once"]


def inspect_once(home: Home, spec: str) -> AgentInfo:
    """Return what ``FILE.py:Class`` is: as it was found before, or by inspecting it now.

    Args:
        home: whose service keeps what is found; nothing is kept while none runs.

    Raises:
        AgentLoadError: the class cannot be used; the subclass says why.
        InvalidInput: ``spec`` names no class.
    """
    path, class_name = parse_spec(spec)
    kept = home.run_dir / "inspected" / _key(path, class_name)
    with suppress(OSError, ValueError, TypeError):  # none yet, or of another version
        return AgentInfo(**json.loads(kept.read_bytes()))
    info = inspect_agent(spec)
    with suppress(OSError):  # no service runs, or it has just ended
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        new = kept.with_name(f"{kept.name}.{os.getpid()}")
        new.write_text(json.dumps(asdict(info)), encoding="utf-8")
        new.replace(kept)
    return info


def _key(path: Path, class_name: str) -> str:
    """Return a name for all that an inspection depends on: sources, Python, module path and working directory."""
    parts = [str(path), class_name, *_seen(path), sys.executable, *sys.path, str(Path.cwd())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _seen(path: Path) -> list[str]:
    """Return the names, sizes and times of change of an agent's file and of the Python files beside it."""
    seen = []
    for source in sorted({path, *path.parent.glob("*.py")}):
        try:
            found = source.stat()
        except OSError:
            seen.append(f"{source.name}:gone")
        else:
            seen.append(f"{source.name}:{found.st_size}:{found.st_mtime_ns}")
    return seen
