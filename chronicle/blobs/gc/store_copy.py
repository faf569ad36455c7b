"""Copying a blob store that is in use into a new directory.

Packs are immutable, and a blob is in a pack before anything refers to it. So all that a journal reaches at some moment
is in the packs that are there after it, as long as none is dropped: no collection may run between the two.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chronicle.blobs.gc.local_disk import only_one
from chronicle.blobs.media.objects import LocalObjects
from chronicle.blobs.packs.catalog import PACK_FOLDER
from chronicle.blobs.packs.opening import open_objects
from chronicle.errors import NotFound, StorageRefused
from chronicle.system.atomic_files import sync_directory, sync_file
from chronicle.system.permissions import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from chronicle.blobs.media.objects import Objects

__all__ = ["StoreCopy", "without_collections"]

_FORMAT_OBJECT = "format"


class StoreCopy:
    """A store whose packs stay, and can be copied.

    Args:
        objects: of the store.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def write(self, target: Path, on_progress: Callable[[int, int], None]) -> int:
        """Copy all packs that are there now into a store in a new directory; durable on return.

        A pack that is removed meanwhile, which only a far store allows, is left out: what was still reachable in it is
        in another one.

        Args:
            target: the directory; it must not exist.
            on_progress: called after each pack, with the number of packs copied and of all.

        Returns:
            the bytes copied.

        Raises:
            StorageRefused: a file could not be read or written.
            Unavailable: the store could not be reached.
        """
        make_private(target)
        copied: set[str] = set()
        size_bytes = 0
        while left := sorted(set(self._objects.names(PACK_FOLDER)) - copied):
            gone = False
            for name in left:
                try:
                    size_bytes += self._copy(name, target / name)
                except NotFound:
                    gone = True  # the packs that replace it are listed again
                copied.add(name)
                on_progress(len(copied), len(left) + len(copied))
            if not gone:
                break
        if copied:
            self._copy(_FORMAT_OBJECT, target / _FORMAT_OBJECT)
        for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
            sync_directory(folder)
        return size_bytes

    def write_to(self, target: Objects, on_progress: Callable[[int, int], None]) -> int:
        """Copy all packs into another store, which may have some of them from a copy that was broken off.

        Args:
            target: the other store.
            on_progress: called after each pack, with the number of packs copied and of all.

        Returns:
            the bytes of all packs.

        Raises:
            Unavailable: one of the stores could not be reached.
        """
        there, packs = target.sizes(PACK_FOLDER), self._objects.sizes(PACK_FOLDER)
        for number, (name, size) in enumerate(sorted(packs.items()), start=1):
            if there.get(name) != size:
                target.write(name, [self._objects.read(name)])
            on_progress(number, len(packs))
        if packs:
            target.write(_FORMAT_OBJECT, [self._objects.read(_FORMAT_OBJECT)])
        return sum(packs.values())

    def _copy(self, name: str, target: Path) -> int:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(self._objects, LocalObjects):
                shutil.copyfile(self._objects.root / name, target)  # in the kernel
            else:
                target.write_bytes(self._objects.read(name))
            sync_file(target)
            return target.stat().st_size
        except FileNotFoundError as error:
            raise NotFound(f"no object {name}") from error
        except OSError as error:
            raise StorageRefused(f"{target} could not be written: {error.strerror}") from error


@contextmanager
def without_collections(url: str, options: Mapping[str, Any] | None = None) -> Iterator[StoreCopy]:
    """Lend a store for copying; on local media no collection runs while the context lasts.

    On other media, the grace period of a collection must be longer than the context.

    Raises:
        Conflict: a collection is running.
        Unavailable: the store could not be reached.
    """
    objects = open_objects(url, options)
    with only_one(objects, dry_run=False):
        yield StoreCopy(objects)
