"""Collection of packs whose blobs nothing refers to any more, while others go on reading and writing.

A collection has two halves, at least a *grace* apart. The first condemns packs that hold little or nothing that is
reachable: from then on writers put again what they would have skipped for being in them. The second, in a later call,
asks anew what is reachable, copies that out of the condemned packs and drops them. A commit that skipped a blob before
it saw the mark is in the journal when the grace is over, and so its blobs are reachable in the second half.

So the caller's duties are: a commit reaches the journal within the grace after its put; ``reached`` looks at every
root there is at the moment it is called; one collection runs at a time (on local disks a lock sees to it). Packs
younger than the grace are left alone. docs/internals/gc.md has the argument and the states after a crash.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chronicle.blobs import ident, packs
from chronicle.blobs.catalog import PACK_FOLDER, pack_object, read_pack_index
from chronicle.blobs.condemned import Mark, read_mark, write_mark
from chronicle.blobs.fsspec_store import open_medium
from chronicle.blobs.objects import STAMP_S, LocalObjects, Objects
from chronicle.clock import Clock, SystemClock
from chronicle.errors import Conflict, Corrupt, InvalidInput, NotFound
from chronicle.ids import IdSource, made_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from chronicle.blobs.packs import PackEntry
    from chronicle.ids import BlobId

__all__ = ["GRACE_S", "GcReport", "collect"]

GRACE_S: Final = 3600.0
"""Between a put and its commit lie seconds; an hour leaves room for a stopped process, clocks that differ and a store
that is slow to answer."""
_COPY_BYTES: Final = 32 * 1024 * 1024
"""Blobs that are copied out of condemned packs go into packs of about this size."""
_STALE_TMP_S: Final = 24 * 3600
"""A file in ``tmp/`` that is older was left by a crash."""


@dataclass(slots=True)
class GcReport:
    """What a collection found and did; with ``dry_run``, what it would do."""

    packs: int = 0
    """In the store before."""
    size_bytes: int = 0
    """Of those packs."""
    condemned: int = 0
    """Packs that this call marked; a later call drops them."""
    condemned_bytes: int = 0
    dropped: int = 0
    """Packs that went."""
    dropped_bytes: int = 0
    copied: int = 0
    """Blobs that were copied out of them."""
    copied_bytes: int = 0
    """Of the packs that took them."""
    damaged: list[str] = field(default_factory=list)
    """What could not be read, and is left as it is."""
    ripe_ms: int | None = None
    """When what is condemned can be dropped, epoch milliseconds; ``None`` if nothing is."""


def collect(
    url: str,
    reached: Callable[[], Collection[BlobId]],
    *,
    grace_s: float = GRACE_S,
    alone: bool = False,
    dry_run: bool = False,
    keep_from: float = 0.5,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    options: Mapping[str, Any] | None = None,
) -> GcReport:
    """Drop what was condemned a grace ago, and condemn what holds little that is reachable.

    Args:
        url: the store's.
        reached: returns the ids of all reachable blobs, from all roots there are when it is called; called once.
        grace_s: seconds; see the module. More than a minute on media that are not local.
        alone: the caller warrants that no other process uses the store until this returns: then both halves are done
            at once, and young packs are not spared.
        dry_run: change nothing.
        keep_from: packs of which at least this part, by stored bytes, is reachable are kept as they are; 1.0 drops
            every unreachable byte, which deleting for good wants.
        clock: dates marks and new packs.
        ids: names new packs.
        options: what the fsspec file system takes.

    Raises:
        InvalidInput: a grace that is too short for the medium.
        Conflict: another collection is running.
        Unavailable: the store could not be reached. Calling again goes on where this stopped.
    """
    clock = clock if clock is not None else SystemClock()
    ids = ids if ids is not None else IdSource()
    names = ids

    def new_name() -> str:
        return names.other("", clock.now_ms())

    objects, catalog, _ = open_medium(url, new_name, options)
    if not alone and not isinstance(objects, LocalObjects) and grace_s <= STAMP_S:
        raise InvalidInput(f"a grace of {grace_s} s is too short for {url}: writers look for marks every {STAMP_S} s")
    with _only_one(objects):
        collection = _Collection(objects, new_name, clock.now_ms(), dry_run=dry_run)
        mark = read_mark(objects)
        kept = {ident.to_raw(identifier) for identifier in reached()}
        collection.survey()
        grace_ms = 0 if alone else round(grace_s * 1000)
        if mark.packs and collection.now_ms - mark.since_ms >= grace_ms:
            mark = collection.sweep(mark, kept, catalog.replace)
        if not mark.packs:
            mark = collection.condemn(mark, kept, grace_ms, keep_from)
            if alone and mark.packs:
                mark = collection.sweep(mark, kept, catalog.replace)
        if mark.packs:
            collection.report.ripe_ms = mark.since_ms + grace_ms
        if isinstance(objects, LocalObjects) and not dry_run:
            _clear_tmp(objects)
        return collection.report


class _Collection:
    """One call of `collect`: the packs there are, and what is done to them."""

    def __init__(self, objects: Objects, new_name: Callable[[], str], now_ms: int, *, dry_run: bool) -> None:
        self._objects = objects
        self._new_name = new_name
        self._dry_run = dry_run
        self._entries: dict[str, list[PackEntry]] = {}
        self._sizes: dict[str, int] = {}
        self.now_ms = now_ms
        self.report = GcReport()

    def survey(self) -> None:
        """Read the index of every pack."""
        for listed, size in self._objects.sizes(PACK_FOLDER).items():
            name = listed.rpartition("/")[2]
            try:
                self._sizes[name] = size
                self._entries[name] = read_pack_index(self._objects, name, size)
            except NotFound:
                self._sizes.pop(name, None)
            except Corrupt as error:
                self.report.damaged.append(str(error))
        self.report.packs = len(self._sizes)
        self.report.size_bytes = sum(self._sizes.values())

    def condemn(self, before: Mark, kept: set[bytes], grace_ms: int, keep_from: float) -> Mark:
        """Mark old packs of which little is reachable."""
        chosen = set()
        for name, entries in self._entries.items():
            stored = sum(entry.stored for entry in entries) + len(entries)
            alive = sum(entry.stored + 1 for entry in entries if entry.raw_id in kept)
            if made_ms(name) <= self.now_ms - grace_ms and (alive == 0 or alive < stored * keep_from):
                chosen.add(name)
        self.report.condemned = len(chosen)
        self.report.condemned_bytes = sum(self._sizes[name] for name in chosen)
        if not chosen:
            return before
        mark = Mark(before.generation + 1, self.now_ms, frozenset(chosen))
        if not self._dry_run:
            write_mark(self._objects, mark)
        return mark

    def sweep(
        self, mark: Mark, kept: set[bytes], replace: Callable[[list[tuple[str, PackEntry]], set[str]], None]
    ) -> Mark:
        """Copy what is reachable out of condemned packs and drop them."""
        doomed = {name for name in mark.packs if name in self._entries}
        elsewhere = {
            entry.raw_id
            for name, entries in self._entries.items()
            if name not in doomed
            for entry in entries
            if entry.raw_id in kept
        }
        saved: dict[bytes, tuple[str, PackEntry]] = {}
        for name in sorted(doomed):
            for entry in self._entries[name]:
                if entry.raw_id in kept and entry.raw_id not in elsewhere:
                    saved.setdefault(entry.raw_id, (name, entry))
        self.report.copied += len(saved)
        if not self._dry_run:
            doomed -= self._copy(saved)
            places = [(name, entry) for name, entries in self._entries.items() for entry in entries]
            replace(places, doomed)  # before any pack goes: whoever sees a pack gone finds the copies
            for name in doomed:
                self._objects.delete(pack_object(name))
        self.report.dropped += len(doomed)
        self.report.dropped_bytes += sum(self._sizes[name] for name in doomed)
        after = Mark(mark.generation + 1, self.now_ms)
        if not self._dry_run:
            write_mark(self._objects, after)
        for name in doomed:
            del self._entries[name]
        return after

    def _copy(self, saved: dict[bytes, tuple[str, PackEntry]]) -> set[str]:
        """Write blobs into new packs; return the packs that must stay because a blob in them is damaged."""
        stuck = set()
        batch: dict[BlobId, bytes] = {}
        size = 0
        for raw_id, (name, entry) in saved.items():
            stored = self._objects.read(pack_object(name), entry.offset, entry.stored)
            try:
                data = packs.unpack_blob(name, entry, stored)
            except Corrupt as error:
                self.report.damaged.append(str(error))
                stuck.add(name)
                continue
            batch[ident.from_raw(raw_id)] = data
            size += len(data)
            if size >= _COPY_BYTES:
                self._write(batch)
                batch, size = {}, 0
        if batch:
            self._write(batch)
        return stuck

    def _write(self, batch: dict[BlobId, bytes]) -> None:
        parts, entries = packs.encode_pack(batch)
        name = self._new_name()
        self._objects.write(pack_object(name), parts)
        self._entries[name] = entries
        self._sizes[name] = sum(len(part) for part in parts)
        self.report.copied_bytes += self._sizes[name]


@contextmanager
def _only_one(objects: Objects) -> Iterator[None]:
    """Hold the lock of collections, where there can be one."""
    if not isinstance(objects, LocalObjects) or not objects.root.is_dir():
        yield
        return
    descriptor = os.open(objects.root / "gc.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(f"another gc of {objects.root} is running; wait for it to end") from error
        yield
    finally:
        os.close(descriptor)


def _clear_tmp(objects: LocalObjects) -> None:
    """Remove what crashes have left of packs that were being written."""
    oldest = time.time() - _STALE_TMP_S
    for name in objects.names("tmp"):
        path = objects.root / name
        try:
            if path.stat().st_mtime < oldest:
                path.unlink()
        except FileNotFoundError:
            continue
