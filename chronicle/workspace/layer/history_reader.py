"""Reading a layer's history: versions of paths, sealed and pending, and their contents."""

from __future__ import annotations

import io
import os
from operator import attrgetter
from typing import TYPE_CHECKING, BinaryIO, Final

from chronicle.blobs.ident import blob_id
from chronicle.blobs.readers import ProgressReader
from chronicle.errors import InvalidInput, NotFound
from chronicle.workspace.content import content as contents
from chronicle.workspace.history.oplog import Operation
from chronicle.workspace.history.oplog import operations as stored_operations
from chronicle.workspace.layer.sealing.contents import store_local
from chronicle.workspace.port import Iteration
from chronicle.workspace.trees.tree import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.history.path_histories import Record
    from chronicle.workspace.history.view import HistoryView, Versions
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.state.layer_state import LayerState

__all__ = ["HistoryReader", "Iterations", "Operations", "encode_path", "iteration_of", "iterations_of", "open_at"]

_ZEROS: Final = "0" * len(blob_id(b""))


class HistoryReader:
    """Reads versions, sealed and pending.

    Args:
        state: the layer's state.
        files: the layer's files on disk, with contents that are not stored yet.
    """

    def __init__(self, state: LayerState, files: LayerFiles) -> None:
        self._state = state
        self._history = state.history
        self._reader = state.reader
        self._files = files

    def history(self, path: str, *, hashed: bool = True) -> Sequence[Iteration]:
        """Return a path's iterations; see `chronicle.workspace.port.Workspace.history`.

        Args:
            path: whose.
            hashed: hash contents that were not hashed yet; otherwise zeros stand for their hash.
        """
        found = list(self.iterations(encode_path(path), hashed=hashed))
        if not found:
            raise NotFound(f"{path!r} never existed")
        return found

    def iterations(self, path: bytes, *, hashed: bool = True) -> Iterations:
        """Return a path's iterations as of now, read lazily; none if it never existed."""
        return Iterations(self._history.view().in_order(path), self.content_id if hashed else _as_long)

    def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path's content at an iteration; see `chronicle.workspace.port.Workspace.at`."""
        return self.open_version(_version_at(self._history.view(), path, iteration))

    def operations(self) -> Operations:
        """Return every operation until now, oldest first, pending ones included."""
        view = self._history.view()
        fresh = [
            Operation(
                record.seq,
                record.timestamp_ms,
                record.op,
                record.turn,
                path,
                number,
                record.size,
                record.source,
            )
            for path in self._history.records
            for number, record in view.noted(path)
        ]
        fresh.sort(key=attrgetter("seq"))
        sealed = self._state.sealed
        return Operations(self._reader, sealed.oplog_id if sealed is not None else None, fresh, self._history.beat)

    def open_version(self, record: Record) -> BinaryIO:
        """Open the content of a version.

        Raises:
            NotFound: it is a directory.
        """
        if record.held is not None and record.content is None:
            return self._files.open_version(record.held, self._reader)
        return _open_stored(self._reader, record)

    def content_id(self, record: Record) -> str:
        """Return the id of a version's content as in a tree; empty if it has none."""
        if record.held is None or record.deleted:
            return iteration_of(record).hash
        if record.held.content is None:
            store_local(_Discard(self._reader, self._history.beat), self._files, record.held)
        assert record.held.content is not None
        return record.held.content.id


class Iterations:
    """A path's iterations as of a moment; can be iterated repeatedly.

    Args:
        versions: the path's versions.
        content_id: returns the id of a version's content.
    """

    def __init__(self, versions: Versions, content_id: Callable[[Record], str]) -> None:
        self._versions = versions
        self._content_id = content_id

    def __iter__(self) -> Iterator[Iteration]:
        """Yield them, oldest first."""
        for record in self._versions:
            yield iteration_of(record, self._content_id(record))


class Operations:
    """Operations up to a moment; can be iterated repeatedly, and reads stored ones each time.

    Args:
        reader: reads blobs.
        oplog_id: the last seal at that moment.
        fresh: the pending operations after it.
        beat: progress callback.
    """

    def __init__(
        self, reader: BlobReader, oplog_id: BlobId | None, fresh: Sequence[Operation], beat: Callable[[], None]
    ) -> None:
        self._reader = ProgressReader(reader, beat)
        self._oplog_id = oplog_id
        self._fresh = fresh

    def __iter__(self) -> Iterator[Operation]:
        """Yield them, oldest first."""
        yield from stored_operations(self._reader, self._oplog_id)
        yield from self._fresh


class _Discard:
    """A buffer that discards blobs, to compute an id."""

    def __init__(self, reader: BlobReader, beat: Callable[[], None]) -> None:
        self._reader = reader
        self._beat = beat

    def get(self, identifier: BlobId) -> bytes:
        return self._reader.get(identifier)

    def add(self, data: bytes) -> BlobId:
        self._beat()
        return blob_id(data)


def _as_long(record: Record) -> str:
    """Return the id of a version's content, or zeros of its length if it is not known yet."""
    if record.held is None or record.deleted:
        return iteration_of(record).hash
    return record.held.content.id if record.held.content is not None else _ZEROS


def iterations_of(view: HistoryView, path: str) -> Sequence[Iteration]:
    """Return a path's iterations in a view without pending versions.

    Raises:
        NotFound: it never existed.
    """
    found = view.records(encode_path(path))
    if not found:
        raise NotFound(f"{path!r} never existed")
    return [iteration_of(record) for record in found]


def open_at(reader: BlobReader, view: HistoryView, path: str, iteration: int) -> BinaryIO:
    """Open a path's content at an iteration in a view without pending versions.

    Raises:
        NotFound: it had none then.
    """
    return _open_stored(reader, _version_at(view, path, iteration))


def _version_at(view: HistoryView, path: str, iteration: int) -> Record:
    raw = encode_path(path)
    record = view.find(raw, iteration)
    if record is None or record.deleted:
        raise view.missing(raw, iteration)
    return record


def _open_stored(reader: BlobReader, record: Record) -> BinaryIO:
    if record.content is not None:
        return contents.open(reader, record.content)
    if record.kind is Kind.DIR:
        raise NotFound("a version of a directory has no content of its own")
    return io.BytesIO(record.target or b"")  # of a symlink; a FIFO, socket or device is empty


def iteration_of(record: Record, content_id: str | None = None) -> Iteration:
    """Return a version as the port has it.

    Args:
        record: the version.
        content_id: the id of its content, if the record does not have it.
    """
    if content_id is None:
        if record.content is not None:
            content_id = record.content.id
        else:
            content_id = blob_id(record.target) if record.target is not None else ""
    return Iteration(
        iteration=record.number,
        timestamp=record.timestamp_ms,
        size=record.size,
        hash="" if record.deleted else content_id,
        op=record.op,
        turn=record.turn,
        source=os.fsdecode(record.source) if record.source is not None else None,
        mode=record.mode,
    )


def encode_path(path: str) -> bytes:
    """Return a path of the port as bytes.

    Raises:
        InvalidInput: absolute, or with ``.`` or ``..`` in it.
    """
    raw = os.fsencode(path)
    if any(part in (b"", b".", b"..") for part in raw.split(b"/")) and raw:
        raise InvalidInput(f"{path!r} is not a path in a workspace: no leading slash, no '.' and no '..'")
    return raw
