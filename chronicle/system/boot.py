"""The id of the running kernel's boot: it distinguishes a power loss from the death of a process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["boot_id"]

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the random id that the kernel chose when it booted.

    Raises:
        OSError: /proc is not mounted, or does not show the id.
    """
    return _BOOT_ID.read_bytes().decode("ascii").strip()  # read_text would look up a codec, maybe on disk
