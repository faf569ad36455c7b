"""Keeping the memory and the environment of a process from others of its user."""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["keep_secrets"]

_PR_SET_DUMPABLE: Final = 4


def keep_secrets() -> None:
    """Let no other process of this user read this one's memory, environment or descriptors, and write no core dump.

    The kernel gives ``/proc/PID`` to root then, and refuses `ptrace`. A child process has it until it executes a
    program.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
