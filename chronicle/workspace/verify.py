"""Reading back everything that a workspace's moment is made of: its tree, the bytes of its files, and its history.

A blob store checks each blob against its id when it is read, so reading is checking. What was read once is not read
again: checking a thousand turns of one workspace costs about what is stored, not a thousand times the last tree.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.errors import Corrupt, NotFound
from chronicle.workspace import history, nodes
from chronicle.workspace.content import chunk_list
from chronicle.workspace.oplog import decode_attr, read_root
from chronicle.workspace.tree import decode_entry, map_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.store import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.content import Content
    from chronicle.workspace.history import Record
    from chronicle.workspace.port import TreeRef

__all__ = ["TreeChecker"]


class TreeChecker:
    """Checks moments of workspaces, each blob once.

    After it raised, drop it: what it remembers as read may reach what it never came to.

    Args:
        reader: must check what it returns, as a blob store does.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = _Counted(reader)
        # Sets for each role: bytes that are a file's content here may be a directory's node elsewhere.
        self._directories: set[BlobId] = set()
        self._chunk_lists: set[BlobId] = set()
        self._data: set[BlobId] = set()
        self._roots: set[BlobId] = set()
        self._attributes: set[BlobId] = set()
        self._histories: set[BlobId] = set()
        self._blocks: set[BlobId] = set()
        self._plain_maps: set[BlobId] = set()

    @property
    def blobs(self) -> int:
        """How many different blobs were read."""
        return len(self._reader.seen)

    def check(self, ref: TreeRef) -> None:
        """Read what a moment reaches and was not read before.

        Raises:
            Corrupt: a blob is missing or is not what it was; the message says what it was part of.
            Unavailable: the store could not be reached.
        """
        self._check_tree(ref.tree_id)
        self._check_log(ref.oplog_id)

    def _check_tree(self, tree_id: BlobId) -> None:
        todo = [(b"", tree_id)]
        while todo:
            path, subtree = todo.pop()
            with _part(f"directory /{_text(path)}"):
                found = list(nodes.walk(self._reader, map_root(subtree), self._directories))
            for _, node in found:
                if node.level:
                    continue
                for name, value in zip(node.keys, node.values, strict=True):
                    below = path + b"/" + name if path else name
                    with _part(f"the entry of {_text(below)}"):
                        entry = decode_entry(value)
                    if entry.subtree is not None and name != b".":
                        todo.append((below, entry.subtree))
                    if entry.content is not None:
                        self._check_content(entry.content, f"the content of {_text(below)}")

    def _check_content(self, content: Content, what: str) -> None:
        with _part(what):
            if not content.chunked:
                self._check_data(content.id, content.size)
            elif content.id not in self._chunk_lists:
                last = next(chunk_list(self._reader, content, content.size - 1), None)
                if last is None or last.end != content.size:
                    raise Corrupt(f"its list of chunks {content.id} does not end at its {content.size} bytes")
                for identifier, node in nodes.walk(self._reader, content.id, self._chunk_lists):
                    if node.level == 0:
                        for chunk in chunk_list(self._reader, replace(content, id=identifier)):
                            self._check_data(chunk.id, chunk.end - chunk.start)

    def _check_data(self, identifier: BlobId, size: int) -> None:
        if identifier not in self._data:
            self._data.add(identifier)
            found = len(self._reader.get(identifier))
            if found != size:
                raise Corrupt(f"blob {identifier} has {found} bytes and should have {size}")

    def _check_log(self, oplog_id: BlobId | None) -> None:
        while oplog_id is not None and oplog_id not in self._roots:
            self._roots.add(oplog_id)
            with _part("the operation log"):
                root = read_root(self._reader, oplog_id)
                for identifier in root.operations:
                    self._reader.get(identifier)
                for plain in (root.commits, root.links):
                    for _ in nodes.walk(self._reader, plain, self._plain_maps):
                        pass
            with _part("the attributes of files"):
                self._check_attributes(root.root.below)
            self._check_histories(root.histories)
            oplog_id = root.previous

    def _check_attributes(self, below: BlobId | None) -> None:
        todo = [below]
        while todo:
            for _, node in nodes.walk(self._reader, todo.pop(), self._attributes):
                if node.level == 0:
                    todo.extend(decode_attr(value).below for value in node.values)

    def _check_histories(self, histories: BlobId | None) -> None:
        with _part("the history of paths"):
            found = list(nodes.walk(self._reader, histories, self._histories))
        for identifier, node in found:
            if node.level:
                continue
            with _part("the history of paths"):
                known = [(path, history.path_history(self._reader, identifier, path)) for path in node.keys]
            for path, versions in known:
                assert versions is not None
                with _part(f"the history of {_text(path)}"):
                    self._check_records(versions.tail, path)
                    if versions.head is not None and versions.head not in self._blocks:
                        self._blocks.add(versions.head)
                        self._check_records(history.newest_first(self._reader, versions), path)

    def _check_records(self, records: Iterator[Record] | tuple[Record, ...], path: bytes) -> None:
        for record in records:
            if record.content is not None:
                self._check_content(record.content, f"the content of {_text(path)} at iteration {record.number}")


class _Counted:
    """A reader that remembers what was asked of it, and the last answer: a node is looked into once for each path."""

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._last: tuple[BlobId, bytes] | None = None
        self.seen: set[BlobId] = set()

    def get(self, blob_id: BlobId) -> bytes:
        if self._last is None or self._last[0] != blob_id:
            self._last = (blob_id, self._reader.get(blob_id))
            self.seen.add(blob_id)
        return self._last[1]


@contextmanager
def _part(what: str) -> Iterator[None]:
    """Say what a bad blob was part of, once."""
    try:
        yield
    except _Located:
        raise
    except (Corrupt, NotFound) as error:
        raise _Located(f"{what}: {error}") from error


class _Located(Corrupt):
    """A damage whose message says where."""


def _text(path: bytes) -> str:
    return path.decode(errors="backslashreplace")
