"""Counting a process's syncs to disk: a small library that is preloaded, built with gcc."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["CAN_COUNT", "said_by", "so_far"]

CAN_COUNT = shutil.which("gcc") is not None


def said_by(directory: Path, *arguments: str | Path, timeout_s: float = 60.0) -> str:
    """Run Python with the library preloaded, built in a directory, and return what it printed."""
    library = directory / "syncs.so"
    source = Path(__file__).with_name("syncs.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=timeout_s)
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "LD_PRELOAD": str(library)},
        check=True,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    return done.stdout


def so_far() -> int:
    """Return how many syncs this process has made; it must have been started with the library."""
    return int(ctypes.CDLL(None).syncs())
