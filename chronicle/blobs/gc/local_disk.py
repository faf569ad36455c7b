"""The local part of a collection: the lock against concurrent collections, free space, and leftovers of crashes."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from chronicle.blobs.media.objects import LocalObjects, Objects
from chronicle.blobs.packs.catalog import INDEX_FOLDER
from chronicle.errors import Conflict, StorageRefused
from chronicle.system.locks import try_lock, unlock

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROOM_BYTES", "clear_tmp", "free_bytes", "is_full", "only_one"]

ROOM_BYTES: Final = 4 * 1024 * 1024
"""Enough for the lists of condemned packs and a small index."""
_STALE_TMP_S: Final = 24 * 3600
"""A temporary file of this age was left by a crash."""


@contextmanager
def only_one(objects: Objects, *, dry_run: bool) -> Iterator[None]:
    """Hold the lock of collections, on media that have one; a dry run takes it shared and does not create it.

    Raises:
        Conflict: another collection is running.
        StorageRefused: the lock could not be opened.
    """
    if not isinstance(objects, LocalObjects) or not objects.root.is_dir():
        yield
        return
    path = objects.root / "gc.lock"
    if dry_run and not path.exists():
        yield
        return
    flags = os.O_RDONLY if dry_run else os.O_RDWR | os.O_CREAT
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageRefused(
            f"{path} cannot be opened: {error.strerror}; make it and its directory writable"
        ) from error
    try:
        if not try_lock(descriptor, shared=dry_run):
            raise Conflict(f"another gc of {objects.root} is running; wait for it to end")
        yield
    finally:
        unlock(descriptor)  # closing leaves it to a child that was forked meanwhile
        os.close(descriptor)


def is_full(objects: LocalObjects) -> bool:
    """Whether the disk may lack space for the list of condemned packs and the index, written before a removal."""
    return objects.root.is_dir() and free_bytes(objects) < ROOM_BYTES


def free_bytes(objects: LocalObjects) -> int:
    """Return the free bytes of a store's disk."""
    free = os.statvfs(objects.root)
    return free.f_bavail * free.f_frsize


def clear_tmp(objects: LocalObjects) -> None:
    """Remove temporary files of packs and of the index that crashes have left."""
    oldest = time.time() - _STALE_TMP_S
    for name in (*objects.names("tmp"), *(name for name in objects.names(INDEX_FOLDER) if name.endswith(".tmp"))):
        path = objects.root / name
        try:
            if path.stat().st_mtime < oldest:
                path.unlink()
        except FileNotFoundError:
            continue
