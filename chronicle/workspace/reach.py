"""What a tree keeps alive, and whether all of it is there.

Blobs are reached in roles: as a directory's node, as a node of a chunk list, as plain bytes. They are told apart, for a
file may have the bytes of a tree node, and having seen it as a file says nothing of what the node refers to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronicle.blobs.ident import RAW_ID_BYTES, blob_id, from_raw
from chronicle.errors import ChronicleError, Corrupt, InvalidInput, Unavailable
from chronicle.workspace import content, nodes, tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.blobs.store import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.content import Content

__all__ = ["Damage", "Reach", "TreeReport", "reachable", "verify_tree"]


class Reach:
    """The blobs that trees, contents and maps refer to; grows as they are added, reading each node once.

    Args:
        reader: where nodes are read from. Plain content is not read.
    """

    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._directories: set[BlobId] = set()
        self._lists: set[BlobId] = set()
        self._maps: set[BlobId] = set()
        self._plain: set[BlobId] = set()

    def __contains__(self, identifier: BlobId) -> bool:
        return (
            identifier in self._plain
            or identifier in self._directories
            or identifier in self._lists
            or identifier in self._maps
        )

    def ids(self) -> set[BlobId]:
        """Return all ids reached so far."""
        return self._plain | self._directories | self._lists | self._maps

    def add_blob(self, identifier: BlobId) -> None:
        """Reach one blob of plain bytes."""
        self._plain.add(identifier)

    def add_map(self, root: BlobId | None) -> None:
        """Reach the nodes of a map of `chronicle.workspace.nodes`; what its values refer to is the caller's."""
        for _ in nodes.walk(self._reader, root, self._maps):
            pass

    def add_content(self, stored: Content) -> None:
        """Reach what a file's content consists of."""
        if not stored.chunked:
            self._plain.add(stored.id)
            return
        for _, node in nodes.walk(self._reader, stored.id, self._lists):
            if node.level == 0:
                self._plain.update(from_raw(value[-RAW_ID_BYTES:]) for value in node.values)

    def add_tree(self, tree_id: BlobId) -> None:
        """Reach a tree: its directories and the contents of its files.

        Raises:
            NotFound, Corrupt, Unavailable: a node could not be read; the tree is reached in part.
        """
        directories = [tree_id]
        while directories:
            for _, node in nodes.walk(self._reader, tree.map_root(directories.pop()), self._directories):
                if node.level > 0:
                    continue
                for value in node.values:
                    entry = tree.decode_entry(value)
                    if entry.subtree is not None:
                        directories.append(entry.subtree)
                    elif entry.content is not None:
                        self.add_content(entry.content)


def reachable(reader: BlobReader, roots: Iterable[BlobId]) -> set[BlobId]:
    """Return the ids of all blobs that the trees with these ids consist of."""
    reach = Reach(reader)
    for root in roots:
        reach.add_tree(root)
    return reach.ids()


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a tree that is not as it was written."""

    path: bytes
    """The file or directory that it hurts; ``b""`` is the root."""
    reason: str


@dataclass(slots=True)
class TreeReport:
    """What `verify_tree` found."""

    directories: int = 0
    """The root included; equal ones are checked once."""
    entries: int = 0
    blobs: int = 0
    """Read and hashed."""
    size_bytes: int = 0
    """Of those blobs."""
    damaged: int = 0
    """Directories and contents that could not be read or are not canonical."""
    first: Damage | None = None
    """The first of them, ``None`` if the tree is sound."""


def verify_tree(reader: BlobReader, tree_id: BlobId) -> TreeReport:
    """Read every blob of a tree and check it.

    Checked are that it is there, its hash, its encoding, and that each directory and each file is cut into the very
    blobs that its content calls for. Goes on after damage, to say how much there is.

    Raises:
        Unavailable: the store could not be reached.
    """
    return _Verify(reader).run(tree_id)


class _Verify:
    def __init__(self, reader: BlobReader) -> None:
        self._reader = reader
        self._read: set[BlobId] = set()
        self._contents: set[Content] = set()
        self._directories: set[BlobId] = set()
        self._report = TreeReport()

    def get(self, blob_id: BlobId) -> bytes:
        """Read through to the store, counting; a `BlobReader`."""
        data = self._reader.get(blob_id)
        if blob_id not in self._read:
            self._read.add(blob_id)
            self._report.blobs += 1
            self._report.size_bytes += len(data)
        return data

    def run(self, tree_id: BlobId) -> TreeReport:
        todo = [(b"", tree_id)]
        while todo:
            path, directory = todo.pop()
            if directory in self._directories:
                continue
            self._directories.add(directory)
            self._report.directories += 1
            try:
                found = self._entries(directory)
            except Unavailable:
                raise
            except ChronicleError as error:
                self._damaged(path, error)
                continue
            for name, entry in found:
                below = path + b"/" + name if path else name
                if entry.subtree is not None and name != b".":
                    todo.append((below, entry.subtree))
                elif entry.content is not None:
                    self._content(below, entry.content)
        return self._report

    def _entries(self, directory: BlobId) -> list[tuple[bytes, tree.Entry]]:
        """Return the entries of a directory after checking it."""
        items = self._canonical_items(tree.map_root(directory))
        found = []
        for name, value in items:
            if name != b".":
                try:
                    tree.check_name(name)
                except InvalidInput as error:
                    raise Corrupt(str(error)) from error
            entry = tree.decode_entry(value)
            if tree.encode_entry(entry) != value:
                raise Corrupt(f"the entry of {name!r} is not in its canonical form")
            found.append((name, entry))
        self._report.entries += len(found)
        return found

    def _content(self, path: bytes, stored: Content) -> None:
        if stored in self._contents:
            return
        self._contents.add(stored)
        try:
            with content.open(self, stored) as file:
                found = content.store_file(_Hashing(self), file)
            if not stored.size:
                self.get(stored.id)
            if found != stored:
                raise Corrupt(f"the content {stored.id} is not cut as its bytes call for, or not of its entry's size")
        except Unavailable:
            raise
        except ChronicleError as error:
            self._damaged(path, error)

    def _canonical_items(self, root: BlobId | None) -> list[tuple[bytes, bytes]]:
        """Return the items of a map after checking that its nodes are those that its items make."""
        items = list(nodes.items(self, root))
        if nodes.update(_Hashing(self), None, dict(items)) != root:
            raise Corrupt(f"the map {root} is not cut as its content calls for")
        return items

    def _damaged(self, path: bytes, error: ChronicleError) -> None:
        self._report.damaged += 1
        if self._report.first is None:
            self._report.first = Damage(path, str(error))


class _Hashing:
    """A buffer that names what is added and keeps nothing: making a thing again in it tells its canonical id."""

    def __init__(self, reader: BlobReader) -> None:
        self.get = reader.get

    def add(self, data: bytes) -> BlobId:
        return blob_id(data)
