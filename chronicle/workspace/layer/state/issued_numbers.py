"""The version numbers that were given out between a layer's base and its last seal. None is ever given out again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from chronicle.workspace.history.oplog import Gap, stored_operations
from chronicle.workspace.history.path_histories import decode_history, find, path_history
from chronicle.workspace.trees import nodes
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.history.oplog import OplogRoot
    from chronicle.workspace.layer.state.pending_history import PendingHistory

__all__ = ["IssuedNumbers", "ReservedNumbers", "gaps_on"]


class ReservedNumbers(NamedTuple):
    """Numbers that must not be given out."""

    floors: dict[bytes, int]
    """By path, the highest number that was given out."""
    gaps: list[Gap]
    """Numbers of paths below renamed directories."""
    next_seq: int
    """The next sequence number."""


class IssuedNumbers:
    """The numbers, operations and renamed directories of the seals since the base."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin at a base."""
        self._last: dict[bytes, int] = {}
        """By path, the last number given out."""
        self.operations: tuple[BlobId, ...] = ()
        """The blobs of the operations."""
        self._moves: list[bytes] = []
        """Old and new paths of directories that were renamed."""

    def __len__(self) -> int:
        """Return the number of paths that got numbers."""
        return len(self._last)

    def note_seal(self, last: Mapping[bytes, int], operations: tuple[BlobId, ...], moves: Iterable[bytes]) -> None:
        """Record a seal: the last numbers of the paths that it concerned, the operations since the base, the moves."""
        self._last.update(last)
        self.operations = operations
        self._moves.extend(moves)

    def read(self, reader: BlobReader, base: OplogRoot, commit: OplogRoot) -> None:
        """Read what an earlier process sealed since a base.

        Raises:
            NotFound, Corrupt, Unavailable: it could not be read.
        """
        # Not from the operations alone: what was rolled back before the seal is only in the histories.
        last = {
            path: decode_history(now).last
            for path, _, now in nodes.diff(reader, base.histories, commit.histories)
            if now is not None
        }
        fresh = replace(commit, operations=commit.operations[len(self.operations) :])
        self.note_seal(last, commit.operations, _moved_directories(reader, fresh))

    def at(self, reader: BlobReader, base: OplogRoot, commit: OplogRoot, target: OplogRoot) -> IssuedNumbers:
        """Return what holds after a move from the last seal to another commit on the base.

        Args:
            reader: reads histories and operations.
            base: the base.
            commit: the last seal.
            target: the commit that is moved to; the base itself perhaps.

        Raises:
            NotFound, Corrupt, Unavailable: it could not be read.
        """
        moved = IssuedNumbers()
        if target is base:
            return moved
        if self._is_behind(target):
            moved.note_seal(self._last, self.operations, self._moves)
            base = commit
        moved.read(reader, base, target)
        return moved

    def _is_behind(self, target: OplogRoot) -> bool:
        """Whether another commit on the base was sealed after the seals so far."""
        return target.operations[: len(self.operations)] == self.operations

    def reserved_numbers(self, history: PendingHistory, base: OplogRoot, commit: OplogRoot) -> ReservedNumbers:
        """Return which numbers must not be given out again if everything since the base is discarded.

        Args:
            history: the versions since the last seal.
            base: the base.
            commit: the last seal.
        """
        floors = _floors_of_pending(history)
        for path, number in self._last.items():
            floors[path] = max(number, floors.get(path, 0))
        # Gaps of the commit may have come with a seal after the base.
        gaps = [*(gap for gap in commit.gaps if gap not in base.gaps), *history.gaps]
        gaps += _gaps_of(self._moves + history.moves, history.next_seq)
        return ReservedNumbers(floors, gaps, max(history.next_seq + 1, base.next_seq))

    def reserved_numbers_at(
        self, reader: BlobReader, history: PendingHistory, commit: OplogRoot, target: OplogRoot
    ) -> ReservedNumbers:
        """Return which numbers must not be given out after a move from the last seal to another commit on the base.

        The versions of that commit keep their numbers; what was given out besides them is withheld.

        Args:
            reader: reads the histories.
            history: the versions since the last seal.
            commit: the last seal.
            target: the commit that is moved to.

        Raises:
            NotFound, Corrupt, Unavailable: a history could not be read.
        """
        floors = _floors_of_pending(history)
        for path, was, now in nodes.diff(reader, commit.histories, target.histories):
            given = max(floors.pop(path, 0), decode_history(was).last if was is not None else 0)
            if given > (decode_history(now).last if now is not None else 0):
                floors[path] = given
        moves = [*(() if self._is_behind(target) else self._moves), *history.moves]
        next_seq = max(history.next_seq, target.next_seq)
        gaps = gaps_on(target, [*commit.gaps, *history.gaps, *_gaps_of(moves, next_seq)])
        return ReservedNumbers(floors, gaps, max([next_seq, *(gap.seq + 1 for gap in gaps)]))


def gaps_on(commit: OplogRoot, gaps: Sequence[Gap]) -> list[Gap]:
    """Return the gaps of layers on other commits as gaps on this one.

    Those that the commit has are left out. The others take effect after it: its versions are numbered without them.
    """
    return [gap._replace(seq=max(gap.seq, commit.next_seq)) for gap in gaps if gap not in commit.gaps]


def _floors_of_pending(history: PendingHistory) -> dict[bytes, int]:
    """Return the floors with the numbers of the versions since the last seal."""
    floors = dict(history.floors)
    view = history.view()
    for path in history.records:
        floors[path] = view.floor(path)
    return floors


def _gaps_of(moves: Sequence[bytes], seq: int) -> list[Gap]:
    return [Gap(path, seq, count) for path, count in Counter(moves).items()]


def _moved_directories(reader: BlobReader, commit: OplogRoot) -> list[bytes]:
    """Return the old and new paths of the directories that the operations of a commit renamed."""
    moves = []
    for operation in stored_operations(reader, commit):
        if operation.source is not None and operation.op == "rename":
            history = path_history(reader, commit.histories, operation.path)
            found = find(reader, history, operation.iteration) if history is not None else None
            if found is not None and found.kind is Kind.DIR:
                moves += [operation.path, operation.source]
    return moves
