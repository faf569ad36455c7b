"""The attributes of all entries of a commit: one map a directory, shaped like its tree, from names to `Attr`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chronicle.workspace.history.oplog import decode_attr, encode_attr
from chronicle.workspace.trees import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.history.oplog import Attr

__all__ = ["update", "walk"]


def walk(reader: BlobReader, root: BlobId | None) -> Iterator[tuple[bytes, Attr]]:
    """Yield every path below the root with its attributes, each directory before its content."""
    stack = [(b"", root)]
    while stack:
        prefix, below = stack.pop()
        for name, value in nodes.items(reader, below):
            attr = decode_attr(value)
            yield prefix + name, attr
            if attr.below is not None:
                stack.append((prefix + name + b"/", attr.below))


def update(buffer: nodes.NodeBuffer, root: BlobId | None, changed: Mapping[bytes, Attr | None]) -> BlobId | None:
    """Return the map of attributes with changes made; a directory keeps what is below it."""
    changes: dict[bytes, dict[bytes, Attr | None]] = {}
    below: dict[bytes, set[bytes]] = {}
    for path, attr in changed.items():
        directory, _, name = path.rpartition(b"/")
        changes.setdefault(directory, {})[name] = attr
        while directory:
            parent, _, name = directory.rpartition(b"/")
            if name in below.setdefault(parent, set()):
                break
            below[parent].add(name)
            directory = parent
    return _put_levels(buffer, root, changes, below) if changes else root


def _put_levels(
    buffer: nodes.NodeBuffer,
    root: BlobId | None,
    changes: Mapping[bytes, dict[bytes, Attr | None]],
    below: Mapping[bytes, set[bytes]],
) -> BlobId | None:
    """Return the root's map: read the maps of the changed directories top down, write them bottom up."""
    levels: list[tuple[bytes, BlobId | None, dict[bytes, Attr | None]]] = []
    stack = [(b"", root)]
    while stack:  # not by recursion: directories may be nested deeper than calls
        directory, level = stack.pop()
        own, deeper = changes.get(directory, {}), below.get(directory, set())
        stored = nodes.lookup_many(buffer, level, own.keys() | deeper)
        attrs: dict[bytes, Attr | None] = {}
        for name in own.keys() | deeper:
            now = decode_attr(stored[name]) if name in stored else None
            attr = own.get(name, now)
            kept = now.below if now is not None else None
            attrs[name] = replace(attr, below=kept) if attr is not None else None
            if attr is not None and name in deeper:
                stack.append((directory + b"/" + name if directory else name, kept))
        levels.append((directory, level, attrs))
    done: dict[bytes, BlobId | None] = {}
    for directory, level, attrs in reversed(levels):
        edits: dict[bytes, bytes | None] = {}
        for name, attr in attrs.items():
            path = directory + b"/" + name if directory else name
            if attr is None:
                edits[name] = None
            else:
                edits[name] = encode_attr(replace(attr, below=done[path]) if path in done else attr)
        done[directory] = nodes.update(buffer, level, edits)
    return done[b""]
