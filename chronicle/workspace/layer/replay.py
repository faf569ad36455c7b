"""Replay of a layer's log: the state when its last process ended, and repairs after a loss of power.

Replay starts at the last `SEALED` record, which names a commit whose blobs are durable, else at the base. A file that
was being written when the process died has the size of its data file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgpack

from chronicle.errors import Corrupt
from chronicle.workspace.content.ranges import Ranges
from chronicle.workspace.history.oplog import Gap
from chronicle.workspace.layer.disk import log_records as records
from chronicle.workspace.layer.disk.data_file import DataFile
from chronicle.workspace.layer.state.node import DirNode, FileNode, Node
from chronicle.workspace.trees.tree import decode_entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.layer.state.apply import Applier

__all__ = ["redo", "replay"]


def replay(applier: Applier, files: LayerFiles, payloads: Sequence[bytes], now_ns: int) -> tuple[set[int], list[bytes]]:
    """Apply the records of a log, and repair what a loss of power left.

    Args:
        applier: changes the state, which is that before the records.
        files: the layer's files.
        payloads: the records.
        now_ns: dates repairs, epoch nanoseconds.

    Returns:
        the numbers of the data and undo files that the state refers to, and records of repairs to append to the log.

    Raises:
        Corrupt: a record contradicts those before it.
    """
    replayer = _Replayer(applier, files, now_ns)
    replayer.do_all(payloads)
    return replayer.finish(), replayer.repairs


def redo(applier: Applier, files: LayerFiles, payloads: Sequence[bytes]) -> None:
    """Apply records that were logged just now. Reads nothing of the blob store, so it cannot fail.

    All existing nodes at the paths in the records are in memory.
    """
    _Replayer(applier, files, is_loaded=True).do_all(payloads)


class _PartialFile:
    """A partial data file, and which of its ranges are synced."""

    def __init__(self, data: DataFile) -> None:
        assert data.partial is not None
        self.data = data
        self.partial = data.partial
        self._synced = Ranges()
        self._unsynced: list[tuple[int, int]] = []

    @property
    def is_synced(self) -> bool:
        """Whether all that was written is on disk for certain."""
        return not self._unsynced

    def write(self, start: int, end: int) -> None:
        self.partial.written.add(start, end)
        self._unsynced.append((start, end))

    def sync(self) -> None:
        for start, end in self._unsynced:
            self._synced.add(start, end)
        self._unsynced.clear()

    def lose(self) -> None:
        """Drop the ranges that may not be on disk: holes may be there."""
        self.partial.written = Ranges(self._synced)
        self._unsynced.clear()


class _Replayer:
    def __init__(self, applier: Applier, files: LayerFiles, now_ns: int = 0, *, is_loaded: bool = False) -> None:
        self._applier = applier
        self._state = applier.state
        self._files = files
        self._now_ns = now_ns
        self._is_loaded = is_loaded
        """Whether all existing nodes are in memory."""
        self._data: dict[int, DataFile] = {}
        self._used: set[int] = set()
        self._copies: dict[int, FileNode] = {}
        """By number, data files that began as a copy of stored content and may not be on disk."""
        self._parts: dict[int, _PartialFile] = {}
        """By number, partial data files."""
        self.repairs: list[bytes] = []

    def do_all(self, payloads: Sequence[bytes]) -> None:
        """Apply records."""
        for payload in payloads:
            fields = msgpack.unpackb(payload, use_list=False)
            try:
                self.do(fields)
            except (AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
                raise Corrupt(f"a layer's log has a record that cannot be: {fields!r}") from error

    def do(self, fields: Sequence[Any]) -> None:
        """Apply one record."""
        applier, state = self._applier, self._state
        match fields:
            case (records.CREATE, ts, path, ino, mode, uid, gid, number):
                parent, name = self._parent(path)
                applier.create(parent, name, ino, mode, uid, gid, self._data_file(number), ts)
            case (records.MAKE, ts, path, ino, mode, uid, gid, target):
                parent, name = self._parent(path)
                applier.make(parent, name, ino, mode, uid, gid, target, ts)
            case (records.DEVICE, ts, path, ino, mode, uid, gid, device):
                parent, name = self._parent(path)
                applier.make_device(parent, name, ino, mode, uid, gid, device, ts)
            case (records.REMOVE, ts, path):
                parent, name = self._parent(path)
                applier.remove(parent, name, self._node(path), ts)
            case (records.RENAME, ts, old, new, flags):
                places = *self._parent(old), *self._parent(new)
                applier.rename(*places, flags, ts, applier.moving(*places, flags))
            case (records.LINK, ts, old, new):
                applier.link(self._node(old), old, *self._parent(new), ts)
            case (records.MODE, ts, path, mode, uid, gid):
                applier.set_mode(self._node(path), mode, uid, gid, ts)
            case (records.RESTORE, ts, path, ino, entry, mtime):
                parent, name = self._parent(path)
                there = self._there(parent, name) if path else parent
                applier.restore(parent if path else None, name, there, ino, decode_entry(entry), mtime, ts)
            case (records.TIMES, ts, path, atime, mtime):
                applier.set_times(self._node(path), atime, mtime, ts)
            case (records.XATTR, ts, path, name, value):
                applier.set_xattr(self._node(path), name, value, ts)
            case (records.DATA, _, path, number, undo, size):
                self._replay_data(path, number, undo, size)
            case (records.VERSION, ts, path, op, size, mtime):
                applier.add_version(self._file(path), op, size, mtime, ts)
            case (records.SYNCED, number):
                self._copies.pop(number, None)
                if number in self._parts:
                    self._parts[number].sync()
            case (records.WRITTEN, number, start, length):
                self._parts[number].write(start, start + length)
            case (records.LOST, number):
                self._parts[number].lose()
            case (records.REVERTED, path):
                node = self._file(path)
                assert node.data is not None
                self._copies.pop(node.data.number, None)
                applier.revert(node)
            case (records.TOGETHER, _):
                pass  # `count_complete` has checked that the records after it are there
            case (records.TURN, turn):
                state.history.set_turn(turn)
            case (records.FLOORS, floors, gaps):
                state.history.floors.update(floors)
                state.history.gaps.extend(Gap(*gap) for gap in gaps)
            case _:
                raise ValueError(fields)

    def finish(self) -> set[int]:
        """Take sizes and times of files that were being written from their data files; return the used file numbers."""
        state, files = self._state, self._files
        if files.power_lost:
            self._repair()
        for number in self._copies:
            self._data[number].is_unsynced_copy = True
        for part in self._parts.values():
            part.data.is_unsynced_copy = part.data.is_unsynced_copy or not part.is_synced
            if part.partial.is_whole:
                part.data.partial = None
        for node in state.modified.values():
            if node.data is None:
                continue
            status = files.stat_data(node.data)
            pinned = node.data.pinned
            if pinned is not None and node.data.partial is not None and status.st_size < pinned.size:
                files.extend_data(node.data, pinned.size)  # otherwise its stored end would count as truncated
                status = files.stat_data(node.data)
            longest = max((held.size for held in node.data.versions), default=0)
            if status.st_size < longest:
                node.data.lost_bytes = longest
            node.note_holes(status)
            if status.st_size != node.length or node.unversioned:
                state.usage.resize(node, status.st_size)
                node.mtime_ns = max(node.mtime_ns, status.st_mtime_ns)
                node.unversioned = True
        return self._used

    def _repair(self) -> None:
        """Repair what a loss of power left: missing names of data files, and missing bytes that were not synced.

        A file's unsynced writes may be lost, as POSIX permits. But an unsynced change does not lose committed content:
        where a copy of it may not be on disk, the stored content counts, and so it does for ranges of a partial data
        file that may not be on disk.
        """
        state = self._state
        modified = [node.data for node in state.modified.values() if node.data is not None]
        for data in (*state.retired, *modified):
            self._files.recreate_data(data)
        for number, part in self._parts.items():
            if not part.is_synced:
                self.repairs.append(records.pack((records.LOST, number)))
                part.lose()
        for number, node in self._copies.items():
            path = state.names.path_of(node)
            if path is not None and node.data is self._data[number]:
                self._applier.revert(node)
                repairs: list[tuple[object, ...]] = [(records.REVERTED, path)]
                if node.unversioned:  # the last version, and its time, are of what was lost
                    version = (records.VERSION, self._now_ns, path, "write", node.length, self._now_ns)
                    self.do(version)
                    repairs = [(records.TOGETHER, 2), *repairs, version]
                self.repairs += map(records.pack, repairs)
        self._copies.clear()

    def _replay_data(self, path: bytes | None, number: int, undo: int, size: int) -> None:
        data = self._data_file(number)
        if undo:
            self._used.add(undo)
        kept = self._files.undo(undo, size) if undo else None
        if kept is not None and self._files.undo_is_kept(undo):
            kept.recover()
        if path is not None:
            node = self._file(path)
            if not undo and size in (records.COPY, records.PART):
                self._copies[number] = node
            if not undo and size == records.PART:
                assert node.content is not None
                self._applier.begin_part(data, node.content)
                self._parts[number] = _PartialFile(data)
            self._applier.begin_write(node, data, kept)
        elif kept is not None:
            data.unpin(kept)

    def _data_file(self, number: int) -> DataFile:
        self._used.add(number)
        data = self._data.get(number)
        if data is None:
            data = self._data[number] = DataFile(number)
            data.synced = True  # perhaps, and what the log says of it now may not be
        return data

    def _node(self, path: bytes) -> Node:
        node = self._state.names.resolve(path)
        if node is None:
            raise TypeError(path)
        return node

    def _there(self, parent: DirNode, name: bytes) -> Node | None:
        return parent.children.get(name) if self._is_loaded else self._state.names.child(parent, name)

    def _file(self, path: bytes) -> FileNode:
        node = self._node(path)
        if not isinstance(node, FileNode):
            raise TypeError(path)
        return node

    def _parent(self, path: bytes) -> tuple[DirNode, bytes]:
        directory, _, name = path.rpartition(b"/")
        parent = self._node(directory)
        if not isinstance(parent, DirNode):
            raise TypeError(path)
        return parent, name
