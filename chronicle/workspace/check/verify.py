"""Verifies commits by reading back all of their blobs: trees, the contents of files, and histories.

A blob store checks each blob against its id when it is read, so reading is checking; in addition, each map, entry and
content must be in its one canonical form, or equal trees would have different ids. Each blob is read once: checking a
thousand turns of one workspace costs about what is stored, not a thousand times the last tree.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from blake3 import blake3

from chronicle.blobs.readers import RecordingReader
from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.workspace.check.verify_content import ContentChecker
from chronicle.workspace.check.verify_maps import MapChecker
from chronicle.workspace.history import path_histories
from chronicle.workspace.history.oplog import decode_attr, read_root
from chronicle.workspace.trees.tree import EMPTY, ROOT_DEFAULT, Kind, check_name, decode_entry, encode_entry, map_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.history.path_histories import Record
    from chronicle.workspace.port import TreeRef
    from chronicle.workspace.trees.nodes import Node
    from chronicle.workspace.trees.tree import Entry

__all__ = ["TreeChecker"]

_ROOT_NAME: Final = b"."
_DIGEST_BYTES: Final = 16


class TreeChecker:
    """Checks commits, each blob once.

    Discard it after it raised: blobs that count as checked may refer to others that were not reached.

    Args:
        reader: must check blobs against their ids, as a blob store does.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = RecordingReader(reader)
        # One for each role: the bytes of a file's content may also be those of a directory's node elsewhere.
        self._directories = MapChecker(self._reader)
        self._contents = ContentChecker(self._reader)
        self._attributes = MapChecker(self._reader)
        self._histories = MapChecker(self._reader)
        self._plain_maps = MapChecker(self._reader)
        self._entries: set[bytes] = set()
        """Digests of checked items of directories."""
        self._versions: set[bytes] = set()
        """Digests of checked items of histories."""
        self._roots: set[BlobId] = set()
        self._blocks: set[BlobId] = set()

    @property
    def blobs(self) -> int:
        """The number of different blobs that were read."""
        return len(self._reader.seen)

    def check(self, ref: TreeRef) -> None:
        """Read the blobs that are reachable from a commit and were not read before.

        Raises:
            Corrupt: a blob is missing, damaged, or not in its canonical form; the message says what it is part of.
            UnsupportedFormat: a newer version wrote it.
            Unavailable: the store could not be reached.
        """
        self.check_tree(ref.tree_id)
        self._check_log(ref.oplog_id)

    def check_tree(self, tree_id: BlobId) -> None:
        """Read the blobs that are reachable from a tree alone, as `check` does."""
        todo = [(b"", tree_id)]
        while todo:
            path, subtree = todo.pop()
            with _part(f"directory /{_text(path)}"):
                found = self._directories.check(map_root(subtree))
            for _, node in found:
                if node.level:
                    continue
                for name, value in self._unknown(self._entries, node):
                    # No context manager here: entering one costs as much as checking an entry, and entries are many.
                    below = path + b"/" + name if path else name
                    try:
                        entry = _sound_entry(name, value)
                    except Corrupt as error:
                        raise _Located(f"the entry of {_text(below)}: {error}") from error
                    if entry.subtree is not None and name != _ROOT_NAME:
                        todo.append((below, entry.subtree))
                    if entry.content is not None:
                        self._check_content(entry.content, below)

    def check_content(self, content: Content, what: str) -> None:
        """Read the blobs of one file's content, as `check` does.

        Args:
            what: names it in a message.
        """
        with _part(what):
            self._contents.check(content)

    def _check_content(self, content: Content, path: bytes, iteration: int | None = None) -> None:
        try:
            self._contents.check(content)
        except (Corrupt, NotFound) as error:
            moment = "" if iteration is None else f" at iteration {iteration}"
            raise _Located(f"the content of {_text(path)}{moment}: {error}") from error

    def _check_log(self, oplog_id: BlobId | None) -> None:
        while oplog_id is not None and oplog_id not in self._roots:
            self._roots.add(oplog_id)
            with _part("the operation log"):
                root = read_root(self._reader, oplog_id)
                for identifier in root.operations:
                    self._reader.get(identifier)
                for plain in (root.commits, root.links):
                    self._plain_maps.check(plain)
            with _part("the attributes of files"):
                self._check_attributes(root.root.below)
            self._check_histories(root.histories)
            oplog_id = root.previous

    def _check_attributes(self, below: BlobId | None) -> None:
        todo = [below]
        while todo:
            for _, node in self._attributes.check(todo.pop()):
                if node.level == 0:
                    todo.extend(decode_attr(value).below for value in node.values)

    def _check_histories(self, histories: BlobId | None) -> None:
        with _part("the history of paths"):
            found = self._histories.check(histories)
        for _, node in found:
            if node.level:
                continue
            for path, value in self._unknown(self._versions, node):
                with _part(f"the history of {_text(path)}"):
                    versions = path_histories.decode_history(value)
                    self._check_records(versions.tail, path)
                    if versions.head is not None and versions.head not in self._blocks:
                        self._blocks.add(versions.head)
                        self._check_records(path_histories.newest_first(self._reader, versions), path)

    def _unknown(self, known: set[bytes], node: Node) -> Iterator[tuple[bytes, bytes]]:
        """Yield the items of a node that no earlier node had: most items of a rewritten node are unchanged."""
        for key, value in zip(node.keys, node.values, strict=True):
            digest = blake3(len(key).to_bytes(4, "big") + key + value).digest(length=_DIGEST_BYTES)
            if digest not in known:
                known.add(digest)
                yield key, value

    def _check_records(self, records: Iterator[Record] | tuple[Record, ...], path: bytes) -> None:
        for record in records:
            if record.content is not None:
                self._check_content(record.content, path, record.number)


def _sound_entry(name: bytes, value: bytes) -> Entry:
    """Return a directory's entry if it is in its canonical form."""
    entry = decode_entry(value)
    if name == _ROOT_NAME:  # the root's own mode, owner and attributes
        sound = entry.kind is Kind.DIR and entry.subtree == EMPTY and entry != ROOT_DEFAULT
    else:
        try:
            check_name(name)
        except InvalidInput as error:
            raise Corrupt(str(error)) from error
        sound = True
    if not sound or encode_entry(entry) != value:
        raise Corrupt("it is not in its canonical form")
    return entry


@contextmanager
def _part(what: str) -> Iterator[None]:
    """Add to an error what the blob is part of, once."""
    try:
        yield
    except _Located:
        raise
    except (Corrupt, NotFound) as error:
        raise _Located(f"{what}: {error}") from error


class _Located(Corrupt):
    """A damage whose message has its location."""


def _text(path: bytes) -> str:
    return path.decode(errors="backslashreplace")
