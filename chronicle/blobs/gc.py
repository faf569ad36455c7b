"""Collection of packs whose blobs nothing refers to any more, while others go on reading and writing.

A collection has two halves, at least a *grace* apart. The first condemns packs that hold little or nothing that is
reachable: from then on writers put again what they would have skipped for being in them. The second, in a later call,
asks anew what is reachable, copies that out of the condemned packs and drops them. A commit that skipped a blob before
it saw the mark is in the journal when the grace is over, and so its blobs are reachable in the second half.

Each turn leaves a small pack. When there are many, the first half also *merges* them: what is reachable in them is
written to new packs, blobs that are alike side by side in one frame, and the old ones are condemned with the rest.
Everything copied is laid out so, on stores of this node; far ones are not merged, as that reads everything.

So the caller's duties are: a commit reaches the journal within the grace after its put; ``reached`` looks at every
root there is at the moment it is called; one collection runs at a time (on local disks a lock sees to it). Packs
younger than the grace are left alone. docs/internals/gc.md has the argument and the states after a crash.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chronicle.blobs import ident, packs
from chronicle.blobs.catalog import INDEX_FOLDER, PACK_FOLDER, pack_object, read_pack_index
from chronicle.blobs.condemned import Mark, read_mark, write_mark
from chronicle.blobs.medium import open_medium
from chronicle.blobs.objects import STAMP_S, LocalObjects, Objects
from chronicle.blobs.similar import runs_of_similar, sketch
from chronicle.clock import Clock, SystemClock
from chronicle.errors import Conflict, Corrupt, InvalidInput, NotFound, StorageRefused
from chronicle.ids import IdSource, made_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from chronicle.blobs.packs import PackEntry
    from chronicle.ids import BlobId

    _Replace = Callable[[list[tuple[str, PackEntry]], set[str]], None]

__all__ = ["GRACE_S", "MERGE_FROM", "GcReport", "collect"]

GRACE_S: Final = 3600.0
"""Between a put and its commit lie seconds; an hour leaves room for a stopped process, clocks that differ and a store
that is slow to answer."""
_COPY_BYTES: Final = 32 * 1024 * 1024
"""Blobs that are copied out of condemned packs go into packs of about this size."""
_SMALL_BYTES: Final = 4 * 1024 * 1024
"""Smaller packs are those of turns, or what was left over when such were merged."""
MERGE_FROM: Final = 16
"""Fewer small packs are not worth merging."""
_AGAIN: Final = 5
"""Merged packs are merged again when all are not more than so many times the small ones: what is new is most alike to
what it was made from, and that lies in the large ones."""
_MERGE_BYTES: Final = 1024**3
"""With more than this, the large ones are left: merging takes 10 s a GiB, and the place of both for a while."""
_ROOM_BYTES: Final = 4 * 1024 * 1024
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
    merged: int = 0
    """So many of the condemned packs were merged into new ones: nearly all that is in them goes on."""
    dropped: int = 0
    """Packs that went."""
    dropped_bytes: int = 0
    copied: int = 0
    """Blobs that were copied out of them, and out of those that were merged."""
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
    merge_from: int = MERGE_FROM,
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
        merge_from: merge small packs when there are so many of them.
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
    with _only_one(objects, dry_run=dry_run):
        collection = _Collection(objects, new_name, clock.now_ms(), merge_from=merge_from, dry_run=dry_run)
        mark = read_mark(objects)
        kept = {ident.to_raw(identifier) for identifier in reached()}
        collection.survey()
        if alone and not dry_run and isinstance(objects, LocalObjects) and _is_full(objects):
            collection.make_room(kept)
        grace_ms = 0 if alone else round(grace_s * 1000)
        if mark.packs and collection.now_ms - mark.since_ms >= grace_ms:
            mark = collection.sweep(mark, kept, catalog.replace)
        if not mark.packs:
            mark = collection.condemn(mark, kept, grace_ms, keep_from, catalog.replace)
            if alone and mark.packs:
                mark = collection.sweep(mark, kept, catalog.replace)
        if mark.packs:
            collection.report.ripe_ms = mark.since_ms + grace_ms
        if isinstance(objects, LocalObjects) and not dry_run:
            _clear_tmp(objects)
        return collection.report


class _Collection:
    """One call of `collect`: the packs there are, and what is done to them."""

    def __init__(
        self, objects: Objects, new_name: Callable[[], str], now_ms: int, *, merge_from: int, dry_run: bool
    ) -> None:
        self._objects = objects
        self._new_name = new_name
        self._merge_from = merge_from
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

    def make_room(self, kept: set[bytes]) -> None:
        """Drop packs of which nothing is reachable, without writing anything; nobody else may use the store.

        The index goes first, so that it leads nobody to what is gone. It is made anew from the packs that stay.
        """
        dead = [name for name, entries in self._entries.items() if all(entry.raw_id not in kept for entry in entries)]
        if not dead:
            return
        for name in self._objects.names(INDEX_FOLDER):
            self._objects.delete(name)
        for name in dead:
            self._objects.delete(pack_object(name))
            del self._entries[name]
            self.report.dropped += 1
            self.report.dropped_bytes += self._sizes[name]

    def condemn(self, before: Mark, kept: set[bytes], grace_ms: int, keep_from: float, replace: _Replace) -> Mark:
        """Mark old packs of which little is reachable, and small ones when there are many, merging those."""
        chosen = set()
        old = {name for name in self._entries if made_ms(name) <= self.now_ms - grace_ms}
        for name in old:
            entries = self._entries[name]
            sharing = Counter((entry.offset, entry.stored) for entry in entries)
            sizes = {entry.raw_id: entry.stored / sharing[entry.offset, entry.stored] + 1 for entry in entries}
            alive = sum(size for raw_id, size in sizes.items() if raw_id in kept)
            if alive == 0 or alive < sum(sizes.values()) * keep_from:
                chosen.add(name)
        merged = self._merge(self._worth_merging(old - chosen), kept, replace)
        self.report.merged = len(merged)
        chosen |= merged
        self.report.condemned = len(chosen)
        self.report.condemned_bytes = sum(self._sizes[name] for name in chosen)
        if not chosen:
            return before
        mark = Mark(before.generation + 1, self.now_ms, frozenset(chosen))
        if not self._dry_run:
            write_mark(self._objects, mark)
        return mark

    def _worth_merging(self, names: set[str]) -> set[str]:
        """Return which of these packs to merge: the small ones if there are many, perhaps with the large ones.

        Those only if they are not much more, so that each byte is written a few times in its life.
        """
        if self._objects.is_far:
            return set()
        small = {name for name in names if self._sizes[name] < _SMALL_BYTES}
        if len(small) < self._merge_from:
            return set()
        total = sum(self._sizes[name] for name in names)
        if total > _MERGE_BYTES or total > _AGAIN * sum(self._sizes[name] for name in small):
            return small
        return names

    def _merge(self, names: set[str], kept: set[bytes], replace: _Replace) -> set[str]:
        """Write what is reachable in packs to new ones; return the packs that are not needed any more.

        Writers find the copies by the time the old packs are condemned, so that they put nothing again.
        """
        if not names:
            return set()
        saved = self._needed(names, kept)
        self.report.copied += len(saved)
        if self._dry_run:
            return names
        stuck = self._copy(saved)
        replace(self._places(), set())
        return names - stuck

    def _places(self) -> list[tuple[str, PackEntry]]:
        """Return all places, new packs' first: of a blob that lies in several, the index keeps the first."""
        return [(name, entry) for name, entries in reversed(self._entries.items()) for entry in entries]

    def _needed(self, names: set[str], kept: set[bytes]) -> dict[bytes, tuple[str, PackEntry]]:
        """Return what is reachable and lies in these packs only, and where."""
        elsewhere = {
            entry.raw_id
            for name, entries in self._entries.items()
            if name not in names
            for entry in entries
            if entry.raw_id in kept
        }
        needed: dict[bytes, tuple[str, PackEntry]] = {}
        for name in sorted(names):
            for entry in self._entries[name]:
                if entry.raw_id in kept and entry.raw_id not in elsewhere:
                    needed.setdefault(entry.raw_id, (name, entry))
        return needed

    def sweep(self, mark: Mark, kept: set[bytes], replace: _Replace) -> Mark:
        """Copy what is reachable out of condemned packs and drop them."""
        doomed = {name for name in mark.packs if name in self._entries}
        saved = self._needed(doomed, kept)
        self.report.copied += len(saved)
        if not self._dry_run:
            doomed -= self._copy(saved)
            replace(self._places(), doomed)
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
        stuck: set[str] = set()
        if self._objects.is_far:  # reading twice, and out of order, costs more than it saves
            batch: list[dict[bytes, bytes]] = []
            size = 0
            for raw_id, data in self._whole(saved, stuck):
                batch.append({raw_id: data})
                size += len(data)
                if size >= _COPY_BYTES:
                    self._write(batch)
                    batch, size = [], 0
            if batch:
                self._write(batch)
            return stuck
        found = [(sketch(data), len(data), raw_id) for raw_id, data in self._whole(saved, stuck)]
        sizes = {raw_id: length for _, length, raw_id in found}
        runs: list[list[bytes]] = []
        size = 0
        for run in runs_of_similar(found, packs.GROUP_BYTES, packs.GROUP_BLOBS):
            runs.append(run)
            size += sum(sizes[raw_id] for raw_id in run)
            if size >= _COPY_BYTES:
                self._write_runs(runs, saved, stuck)
                runs, size = [], 0
        if runs:
            self._write_runs(runs, saved, stuck)
        return stuck

    def _write_runs(self, runs: list[list[bytes]], saved: dict[bytes, tuple[str, PackEntry]], stuck: set[str]) -> None:
        found = dict(self._whole({raw_id: saved[raw_id] for run in runs for raw_id in run}, stuck))
        self._write([{raw_id: found[raw_id] for raw_id in run if raw_id in found} for run in runs])

    def _whole(self, wanted: dict[bytes, tuple[str, PackEntry]], stuck: set[str]) -> Iterator[tuple[bytes, bytes]]:
        """Yield blobs that are as they were; note what is damaged, and the packs that must stay for it."""
        for raw_id, name, data in self._read(wanted):
            if isinstance(data, Corrupt):
                self.report.damaged.append(str(data))
                stuck.add(name)
            else:
                yield raw_id, data

    def _read(self, wanted: dict[bytes, tuple[str, PackEntry]]) -> Iterator[tuple[bytes, str, bytes | Corrupt]]:
        """Yield blobs, their packs and their bytes, or what is wrong with them; each range is read once."""
        ranges: dict[tuple[str, int, int], list[PackEntry]] = {}
        for name, entry in wanted.values():  # an empty blob has the offset of the next one
            ranges.setdefault((name, entry.offset, entry.stored), []).append(entry)
        for (name, offset, size), entries in sorted(ranges.items(), key=lambda one: one[0]):
            stored = self._objects.read(pack_object(name), offset, size)
            for entry, data in packs.unpack_group(name, entries, stored):
                yield entry.raw_id, name, data

    def _write(self, groups: list[dict[bytes, bytes]]) -> None:
        """Write blobs to a new pack."""
        named = ({ident.from_raw(raw_id): data for raw_id, data in group.items()} for group in groups if group)
        parts, entries = packs.encode_groups(named)
        name = self._new_name()
        self._objects.write(pack_object(name), parts)
        self._entries[name] = entries
        self._sizes[name] = sum(len(part) for part in parts)
        self.report.copied_bytes += self._sizes[name]


@contextmanager
def _only_one(objects: Objects, *, dry_run: bool) -> Iterator[None]:
    """Hold the lock of collections, where there can be one; only to look, it is not made, and shared."""
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
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if dry_run else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict(f"another gc of {objects.root} is running; wait for it to end") from error
        yield
    finally:
        os.close(descriptor)


def _is_full(objects: LocalObjects) -> bool:
    """Whether the disk may not take the marks and the index that a collection writes before anything goes."""
    if not objects.root.is_dir():
        return False
    free = os.statvfs(objects.root)
    return free.f_bavail * free.f_frsize < _ROOM_BYTES


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
