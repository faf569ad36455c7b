"""The local key of a home: the key of this user's own programs, in ``local.key``, readable for its owner only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from chronicle.system.atomic_files import replacing, sync_file
from coordinator.access.caller import Scope
from podium.address import DEFAULT_TENANT

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.access.records import KeyRecords

__all__ = ["FILE", "ensure_local_key", "read_local_key"]

FILE: Final = "local.key"
_NAME: Final = "local"


def read_local_key(home: Path) -> str | None:
    """Return the text of a home's local key; ``None`` if there is none, or this user may not read it."""
    try:
        return (home / FILE).read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def ensure_local_key(home: Path, keys: KeyRecords, now_ms: int) -> str | None:
    """Create the local key unless there is one that works.

    It has all scopes, in the default tenant, and does not expire.

    Returns:
        the new key's text, to be shown once; ``None`` if there was one.

    Raises:
        StorageRefused: the keys cannot be written.
        OSError: the file cannot be written.
    """
    there = read_local_key(home)
    if there is not None and keys.find(there) is not None:
        return None
    _, text = keys.create(_NAME, DEFAULT_TENANT, [Scope.ADMIN], now_ms)
    path = home / FILE
    with replacing(path) as partial:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(text + "\n")
        sync_file(partial)
    return text
