"""Collection of packs whose blobs are unreachable, concurrent with readers and writers.

A collection has two halves, at least a *grace* period apart. The first condemns packs with few or no reachable blobs:
from then on writers store the blobs of these packs again instead of skipping them. The second, in a later call,
recomputes the reachable blobs, copies them out of the condemned packs and drops the packs. A commit that skipped a blob
before it saw the list is in the journal when the grace period is over, so its blobs are reachable in the second half.

Each turn leaves a small pack. When there are many, the first half also *merges* them: their reachable blobs are written
to new packs, similar blobs side by side in one frame, and the old packs are condemned with the rest. All copies on
stores of this node have this layout; far stores are not merged, as that reads everything.

So the caller's duties are: a commit reaches the journal within the grace period after its put; ``reached`` includes
every root that exists when it is called; one collection runs at a time (on local disks a lock ensures this). Packs
younger than the grace period are spared. docs/internals/gc.md has the argument and the states after a crash.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from chronicle.blobs import ident
from chronicle.blobs.gc.idle_note import is_noted, note, state_of
from chronicle.blobs.gc.local_disk import ROOM_BYTES, clear_tmp, free_bytes, is_full, only_one
from chronicle.blobs.gc.repack import Copier
from chronicle.blobs.gc.survey import Survey
from chronicle.blobs.media.objects import STAMP_S, LocalObjects, Objects
from chronicle.blobs.packs.catalog import INDEX_FOLDER, PACK_FOLDER, Catalog, pack_object, read_pack_indexes
from chronicle.blobs.packs.condemned import Batch, CondemnedPacks, Moment, read_condemned, write_condemned
from chronicle.blobs.packs.opening import open_medium
from chronicle.blobs.packs.pack_format import PackIndex
from chronicle.clock import Clock, SystemClock
from chronicle.errors import Corrupt, InvalidInput
from chronicle.ids import IdSource
from chronicle.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from chronicle.blobs.packs.pack_format import PackEntry
    from chronicle.ids import BlobId

__all__ = ["GRACE_S", "MERGE_FROM", "GcReport", "GcRules", "collect"]

GRACE_S: Final = 3600.0
"""A commit follows its put within seconds; an hour allows for a stopped process, clock skew and a slow store."""
_SMALL_BYTES: Final = 4 * 1024 * 1024
"""Smaller packs are those of turns, or remainders of a merge."""
MERGE_FROM: Final = 16
"""Fewer small packs are not worth merging."""
_AGAIN: Final = 5
"""Large packs are merged again if all packs have at most this many times the bytes of the small ones: new blobs are
most similar to their previous versions, which are in the large packs."""
_MERGE_BYTES: Final = 1024**3
"""Above this total size large packs are not merged: merging takes 10 s per GiB, and for a while the space of both."""
_READ_TOGETHER: Final = 64
"""Indexes per batch of reads: at most 4 MiB of them."""
_INDEX_BYTES: Final = 60
"""Bytes of the index per blob."""


@dataclass(frozen=True, slots=True)
class GcRules:
    """The rules of a collection."""

    grace_s: float = GRACE_S
    """The grace period, seconds; see the module. More than a minute on media that are not local."""
    alone: bool = False
    """The caller warrants that no other process uses the store until `collect` returns: then both halves are done at
    once, and young packs are not spared."""
    dry_run: bool = False
    """Change nothing."""
    keep_from: float = 0.5
    """Packs with at least this reachable fraction of their stored bytes are kept; 1.0 drops every unreachable byte, as
    permanent deletion needs."""
    merge_from: int = MERGE_FROM
    """The number of small packs from which they are merged."""
    kept_s: float | None = None
    """For how long condemned packs are kept, seconds, if that is longer than the grace period: a journal that is
    restored to a moment within it finds its blobs. By default ``CHRONICLE_BACKUP_WINDOW_S`` for far stores, and nothing
    for local ones, whose backup has the packs. ``alone`` waits for nothing."""
    generation: int = 0
    """Of the journal: another one means that it may have gone back, and refer to blobs that were unreachable before."""


_RULES: Final = GcRules()


@dataclass(slots=True)
class GcReport:
    """Result of a collection; with ``dry_run``, of the one that would be made."""

    packs: int = 0
    """Packs in the store before the collection."""
    size_bytes: int = 0
    """The size of those packs."""
    condemned: int = 0
    """Packs that this call condemned; a later call drops them."""
    condemned_bytes: int = 0
    merged: int = 0
    """The condemned packs that were merged into new ones, with nearly all of their blobs."""
    dropped: int = 0
    """Packs that this call dropped."""
    dropped_bytes: int = 0
    copied: int = 0
    """Blobs that were copied out of dropped and merged packs."""
    copied_bytes: int = 0
    """The size of the new packs."""
    damaged: list[str] = field(default_factory=list)
    """The unreadable packs and blobs, which are left unchanged."""
    ripe_ms: int | None = None
    """When the condemned packs can be dropped, epoch milliseconds; ``None`` if there are none."""


def collect(
    url: str,
    reached: Callable[[], Collection[BlobId]],
    rules: GcRules = _RULES,
    *,
    roots: Callable[[], str] | None = None,
    held: Callable[[], None] | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> GcReport:
    """Drop packs whose grace period is over, and condemn packs with few reachable blobs.

    Args:
        url: the store's.
        reached: returns the ids of all blobs reachable from the roots that exist when it is called; called once.
        rules: see `GcRules`.
        roots: returns a text that names these roots: equal texts mean equal reachable blobs. With it, a call that is
            ``alone`` notes that it left nothing to do, and a call that finds the noted state does not call ``reached``.
        held: called before each attempt to store or to remove an object of a store that has no lock of its own; raises
            once the right to collect has passed to another process, or may pass to one before a request has ended.
        clock: dates the list of condemned packs, and new packs.
        ids: names new packs.

    Raises:
        InvalidInput: the grace period is too short for the medium.
        Conflict: another collection is running.
        Unavailable: the store could not be reached. Another call continues where this one stopped.
    """
    clock = clock if clock is not None else SystemClock()
    names = ids if ids is not None else IdSource()
    alone, dry_run = rules.alone, rules.dry_run

    def new_name() -> str:
        return names.other("", clock.now_ms())

    objects, catalog, _ = open_medium(url, new_name)
    if not alone and not isinstance(objects, LocalObjects) and rules.grace_s <= STAMP_S:
        raise InvalidInput(
            f"a grace of {rules.grace_s} s is too short for {url}: writers look for condemned packs every {STAMP_S} s"
        )
    if held is not None and not isinstance(objects, LocalObjects):
        objects.before_change = held
    with only_one(objects, dry_run=dry_run):
        collection = _Collection(objects, catalog, new_name, clock, rules, _kept_s(rules, objects))
        condemned = read_condemned(objects)

        def state(of: str, packs: Mapping[str, int]) -> str:
            return state_of(packs, of, keep_from=rules.keep_from, merge_from=rules.merge_from)

        named = roots() if alone and roots is not None else None
        if named is not None and not condemned.packs:
            packs = collection.listed()
            if is_noted(objects, state(named, packs)):
                if isinstance(objects, LocalObjects) and not dry_run:
                    clear_tmp(objects)
                return GcReport(packs=len(packs), size_bytes=sum(packs.values()))
        kept = {ident.to_raw(identifier) for identifier in reached()}
        collection.survey()
        if alone and not dry_run and isinstance(objects, LocalObjects) and is_full(objects):
            collection.make_room(kept)
        condemned = collection.begin_again(condemned)
        condemned = collection.empty(condemned, kept)
        condemned = collection.sweep(condemned, collection.ripe(condemned), kept)
        condemned = collection.condemn(condemned, kept)
        if alone:
            condemned = collection.sweep(condemned, condemned.batches, kept)
        if condemned.batches:
            collection.report.ripe_ms = collection.ripe_ms(condemned)
        elif named is not None and not dry_run and collection.is_done(kept):
            note(objects, state(named, collection.listed()))
        if isinstance(objects, LocalObjects) and not dry_run:
            clear_tmp(objects)
        return collection.report


def _kept_s(rules: GcRules, objects: Objects) -> float:
    if rules.kept_s is not None:
        return rules.kept_s
    return read_settings().backup_window_s if objects.is_far else 0.0


class _Collection:
    """One call of `collect`: its packs, and the operations on them."""

    def __init__(
        self,
        objects: Objects,
        catalog: Catalog,
        new_name: Callable[[], str],
        clock: Clock,
        rules: GcRules,
        kept_s: float,
    ) -> None:
        self._objects = objects
        self._catalog = catalog
        self._survey = Survey()
        self._copier = Copier(objects, self._survey, new_name)
        self._clock = clock
        self._now_ms = clock.now_ms()
        self._rules = rules
        self._grace_ms = round(rules.grace_s * 1000)
        self._kept_ms = round(kept_s * 1000)
        self.report = GcReport()

    def listed(self) -> dict[str, int]:
        """Return the present packs, by name, with their sizes in bytes."""
        return {listed.rpartition("/")[2]: size for listed, size in self._objects.sizes(PACK_FOLDER).items()}

    def survey(self) -> None:
        """Read the index of every pack."""
        listed = self.listed()
        names = list(listed)
        for at in range(0, len(names), _READ_TOGETHER):
            for name, index in read_pack_indexes(self._objects, names[at : at + _READ_TOGETHER], listed):
                if isinstance(index, PackIndex):
                    self._survey.add(name, index, listed[name])
                elif isinstance(index, Corrupt):
                    self.report.damaged.append(str(index))
                    self.report.packs += 1
                    self.report.size_bytes += listed[name]
        self.report.packs += len(self._survey.sizes)
        self.report.size_bytes += sum(self._survey.sizes.values())

    def make_room(self, kept: set[bytes]) -> None:
        """Drop packs without reachable blobs, without writing anything; no other process may use the store.

        The index is removed first, so that it refers no reader to a missing pack. It is rebuilt from the remaining
        packs.
        """
        dead = [name for name in self._survey.names() if kept.isdisjoint(self._survey.raw_ids(name))]
        if not dead:
            return
        for name in self._objects.names(INDEX_FOLDER):
            self._objects.delete(name)
        for name in dead:
            self._objects.delete(pack_object(name))
            self._forget(name)

    def announce(self, generation: int, batches: Iterable[Batch] = ()) -> CondemnedPacks:
        """Replace the list of condemned packs."""
        condemned = CondemnedPacks(generation, tuple(batches))
        if not self._rules.dry_run:
            write_condemned(self._objects, condemned)
        return condemned

    def begin_again(self, condemned: CondemnedPacks) -> CondemnedPacks:
        """Begin waits again that would last longer than a wait does, because a clock was set back."""
        if all(
            batch.condemned.left_ms(self._grace_ms, self._clock) <= self._grace_ms
            and (batch.emptied is None or batch.emptied.left_ms(self._kept_ms, self._clock) <= self._kept_ms)
            for batch in condemned.batches
        ):
            return condemned
        return self.announce(condemned.generation, [Batch.made(self._clock, each.packs) for each in condemned.batches])

    def empty(self, condemned: CondemnedPacks, kept: set[bytes]) -> CondemnedPacks:
        """Copy the reachable blobs out of packs whose grace period is over, and begin the wait for the backup window.

        Not at the end of that wait alone: by then what was reachable may not be, and a journal that is restored to the
        time between needs it.
        """
        due = {batch for batch in condemned.batches if self._is_due(batch)}
        if not due:
            return condemned
        packs = frozenset[str]().union(*(batch.packs for batch in due))
        there = self._survey.names()
        stuck = self._copy_out(self._lacking(packs & there, there - condemned.packs, kept))
        now, generation = Moment.now(self._clock), self._rules.generation

        def emptied(batch: Batch) -> Batch:
            return replace(batch, packs=batch.packs - stuck, emptied=now, generation=generation)

        return self.announce(
            condemned.generation, [emptied(batch) if batch in due else batch for batch in condemned.batches]
        )

    def _is_due(self, batch: Batch) -> bool:
        """Whether a batch is to be emptied; without a backup window, sweeping it does that."""
        return (
            self._kept_ms > 0
            and not self._rules.alone
            and (batch.emptied is None or batch.generation != self._rules.generation)
            and batch.condemned.left_ms(self._grace_ms, self._clock) <= 0
        )

    def ripe(self, condemned: CondemnedPacks) -> list[Batch]:
        """Return the batches that can be swept."""
        return [batch for batch in condemned.batches if self._rules.alone or self._left_ms(batch) <= 0]

    def ripe_ms(self, condemned: CondemnedPacks) -> int:
        """Return when the first batch can be swept, epoch milliseconds, if it is emptied as soon as it can be."""
        return self._clock.now_ms() + min(max(0, self._left_ms(batch)) for batch in condemned.batches)

    def _left_ms(self, batch: Batch) -> int:
        """Return the rest of the waits of a batch, milliseconds."""
        grace_ms = batch.condemned.left_ms(self._grace_ms, self._clock)
        if self._kept_ms == 0:
            return grace_ms
        if batch.emptied is not None and batch.generation == self._rules.generation:
            return max(grace_ms, batch.emptied.left_ms(self._kept_ms, self._clock))
        return max(0, grace_ms) + self._kept_ms

    def condemn(self, before: CondemnedPacks, kept: set[bytes]) -> CondemnedPacks:
        """Condemn packs with few reachable blobs; if there are many small packs, merge and condemn them, too.

        Args:
            before: the present list.
            kept: the reachable blobs.
        """
        sizes = self._survey.sizes
        there = sizes.keys() - before.packs
        made_ms, oldest_ms = self._survey.made_ms, self._now_ms - self._grace_ms
        old = {name for name in there if self._rules.alone or made_ms[name] <= oldest_ms}
        chosen = self._wasteful(old, kept)
        merged = self._merge(self._worth_merging(old - chosen), there, kept)
        if not self._rules.dry_run:
            self._catalog.cover(self._index(), self._survey.names(), self._now_ms)
        self.report.merged = len(merged)
        chosen |= merged
        self.report.condemned = len(chosen)
        self.report.condemned_bytes = sum(sizes[name] for name in chosen)
        if not chosen:
            return before
        return self.announce(before.generation + 1, [*before.batches, Batch.made(self._clock, chosen)])

    def is_done(self, kept: set[bytes]) -> bool:
        """Whether another collection of the same store would find neither work nor damage."""
        if self.report.damaged or not self._survey.sizes:
            return False
        names = self._survey.names()
        return not self._wasteful(names, kept) and not self._worth_merging(names)

    def _wasteful(self, names: set[str], kept: set[bytes]) -> set[str]:
        """Return the packs whose reachable fraction is below `GcRules.keep_from`."""
        found = set()
        for name in names:
            entries = list(self._survey.entries(name))
            sharing = Counter((entry.offset, entry.stored) for entry in entries)
            parts = {entry.raw_id: entry.stored / sharing[entry.offset, entry.stored] + 1 for entry in entries}
            alive = sum(size for raw_id, size in parts.items() if raw_id in kept)
            if alive == 0 or alive < sum(parts.values()) * self._rules.keep_from:
                found.add(name)
        return found

    def _worth_merging(self, names: set[str]) -> set[str]:
        """Return the packs to merge: the small ones if there are many, perhaps with the large ones.

        Large ones only if they are not much larger in total, so that each byte is rewritten only a few times; on far
        stores never. There the last pack of each line stays as well: a workspace is opened from it in one request.
        """
        sizes = self._survey.sizes
        small = {name for name in names if sizes[name] < _SMALL_BYTES}
        if self._objects.is_far:
            small -= self._survey.heads()
        if len(small) < self._rules.merge_from:
            return set()
        if self._objects.is_far:
            return small
        total = sum(sizes[name] for name in names)
        if total > _MERGE_BYTES or total > _AGAIN * sum(sizes[name] for name in small):
            return small
        return names

    def _merge(self, names: set[str], there: set[str], kept: set[bytes]) -> set[str]:
        """Write the reachable blobs of packs to new ones; return the packs that are no longer needed.

        The copies are visible to writers before the old packs are condemned, so that no blob is put again. Without
        space for all copies nothing is merged: a collection must not fill the disk.

        Args:
            names: the packs to merge.
            there: the packs that are not condemned.
            kept: the reachable blobs.
        """
        if not names:
            return set()
        needed = self._lacking(names, there - names, kept)
        if not self._rules.dry_run and not self._has_room_for(needed):
            return set()
        return names - self._copy_out(needed)

    def _copy_out(self, needed: dict[bytes, tuple[int, ...]]) -> set[str]:
        """Write blobs to new packs, and let others find them there; return the packs that must stay, as `_copy` does.

        The index is written in any case: an earlier call may have made the copies, and died before that.
        """
        if self._rules.dry_run:
            self.report.copied += len(needed)
            return set()
        stuck = self._copy(needed)
        self._catalog.replace(self._index(), set(), self._now_ms)
        return stuck

    def _lacking(
        self, names: AbstractSet[str], others: AbstractSet[str], kept: set[bytes]
    ) -> dict[bytes, tuple[int, ...]]:
        """Return the places of the reachable blobs that some packs have and others do not."""
        needed = self._survey.places(names, kept)
        for name in others:
            for raw_id in self._survey.raw_ids(name):
                needed.pop(raw_id, None)
        return needed

    def sweep(self, condemned: CondemnedPacks, ripe: Collection[Batch], kept: set[bytes]) -> CondemnedPacks:
        """Copy the reachable blobs out of condemned packs and drop the packs.

        A copy in another pack counts only if it is undamaged: it is read before the last other one is dropped. Copies
        in far stores, which check their data and are slow to read, are trusted.
        """
        if not ripe:
            return condemned
        doomed = frozenset().union(*(batch.packs for batch in ripe)) & self._survey.names()
        needed = self._survey.places(doomed, kept)
        for name in self._survey.names() - doomed:
            entries = [entry for entry in self._survey.entries(name) if entry.raw_id in needed]
            if self._rules.dry_run or self._objects.is_far:
                found = [entry.raw_id for entry in entries]
            else:
                found = [raw_id for raw_id, data in self._copier.sound_in(name, entries) if data is not None]
            for raw_id in found:
                del needed[raw_id]
        if self._rules.dry_run:
            self.report.copied += len(needed)
            self._drop(doomed)
        else:
            going = doomed
            if not self._has_room_for(needed):
                lacking = {self._survey.at(place)[0] for places in needed.values() for place in places}
                self._drop(doomed - lacking)
                going = doomed & lacking
            self._drop(going - self._copy(needed))
        return self.announce(condemned.generation + 1, [batch for batch in condemned.batches if batch not in ripe])

    def _drop(self, names: Collection[str]) -> None:
        """Remove packs."""
        if not self._rules.dry_run and names:
            self._catalog.replace(self._index(), frozenset(names), self._now_ms)
        for name in names:
            self._forget(name)

    def _forget(self, name: str) -> None:
        """Record that a pack was removed."""
        self.report.dropped += 1
        self.report.dropped_bytes += self._survey.sizes[name]
        self._survey.remove(name)

    def _index(self) -> Iterator[tuple[str, PackEntry]]:
        """Yield all places, new packs' first, known damaged ones last: the index keeps a blob's first place."""
        damaged = self._copier.damaged
        yield from ((name, entry) for name, entry in self._survey.all() if (entry.raw_id, name) not in damaged)
        if damaged:
            yield from ((name, entry) for name, entry in self._survey.all() if (entry.raw_id, name) in damaged)

    def _copy(self, needed: dict[bytes, tuple[int, ...]]) -> set[str]:
        """Write blobs to new packs; return the packs that must stay because a blob in them is damaged.

        Copied blobs are removed from ``needed``.
        """
        for name, index, size in self._copier.copy(needed, self._clock.now_ms()):
            self._survey.add(name, index, size)
            self.report.copied += len(index.entries)
            self.report.copied_bytes += size
            for entry in index.entries:
                del needed[entry.raw_id]
        stuck = set()
        for raw_id, places in needed.items():
            names = [self._survey.at(place)[0] for place in places]
            self.report.damaged.append(self._copier.damaged[raw_id, names[0]])
            stuck.update(names)
        return stuck

    def _has_room_for(self, needed: dict[bytes, tuple[int, ...]]) -> bool:
        """Whether the disk has space for copies of blobs and a new index, and as much again for commits."""
        if not isinstance(self._objects, LocalObjects):
            return True
        size = 0
        seen = None
        for place in sorted(places[0] for places in needed.values()):
            name, entry = self._survey.at(place)
            if (name, entry.offset) != seen:  # blobs of a group are not all adjacent: an overestimate
                size += entry.stored
            seen = name, entry.offset
        return free_bytes(self._objects) >= 2 * (size + _INDEX_BYTES * self._survey.count()) + ROOM_BYTES
