"""A cache of inspections of agents' classes, valid while a home's service runs and the sources do not change.

An inspection starts a process that imports the agent's code, which is most of the time of a command that sends one
message to a running service. The cache is in the service's run directory and is removed with it. A stale result does no
harm: the agent's host imports the code again, and its errors reach the client as well.
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.system.atomic_files import replacing
from podium.agent.inspect import AgentInfo, inspect_agent
from podium.agent.spec import parse_spec

if TYPE_CHECKING:
    from coordinator.home import Home

__all__ = ["inspect_once"]


def inspect_once(home: Home, spec: str) -> AgentInfo:
    """Return the inspection of ``FILE.py:Class`` from the cache, or make it now.

    Args:
        home: its service's directory holds the cache; without a running service nothing is cached.

    Raises:
        AgentLoadError: the class cannot be used; the subclass says why.
        InvalidInput: ``spec`` names no class.
    """
    path, class_name = parse_spec(spec)
    kept = home.run_dir / "inspected" / _key(path, class_name)
    with suppress(OSError, ValueError, TypeError):  # Not cached, or by another release.
        return AgentInfo.from_json(json.loads(kept.read_bytes()))
    info = inspect_agent(spec)
    with suppress(OSError):  # No service runs, or it has just ended.
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        with replacing(kept) as new:
            new.write_text(json.dumps(asdict(info)), encoding="utf-8")
    return info


def _key(path: Path, class_name: str) -> str:
    """Return the cache key: a hash of the sources, the Python, the module path and the working directory."""
    parts = [str(path), class_name, *_seen(path), sys.executable, *sys.path, str(Path.cwd())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _seen(path: Path) -> list[str]:
    """Return names, sizes and modification times of an agent's file and of the Python files beside it."""
    seen = []
    for source in sorted({path, *path.parent.glob("*.py")}):
        try:
            found = source.stat()
        except OSError:
            seen.append(f"{source.name}:gone")
        else:
            seen.append(f"{source.name}:{found.st_size}:{found.st_mtime_ns}")
    return seen
