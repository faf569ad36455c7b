"""A directory in memory for tests that create and delete files by the ten thousand.

Ext4 does not take the inode of a file that was deleted within the last minutes (``recently_deleted`` in
``fs/ext4/ialloc.c``), so among many deletions each creation looks at thousands of inodes first. That was a seventh of
the processor time in a sample of a whole run. In memory, `tests/crash` needs a fifth to a third less of it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.leftovers import new_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY: Final = Path("/dev/shm")
NEEDED_BYTES: Final = 1 << 30
"""What must be free there: several times what the tests need. Containers often have 64 MB."""


@contextlib.contextmanager
def directory_in_memory() -> Iterator[Path | None]:
    """Make an empty directory in memory and remove it at the end; ``None`` where there is no room for it."""
    if not has_room():
        yield None
        return
    with new_directory("podium-tests-", MEMORY) as made:
        yield made


def has_room() -> bool:
    """Whether there is a file system in memory with enough room."""
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return False
    return os.access(MEMORY, os.W_OK) and found.f_bavail * found.f_frsize >= NEEDED_BYTES
