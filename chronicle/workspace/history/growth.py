"""How many bytes new versions add to those that a workspace has kept before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.workspace.content.chunk_list import bytes_added

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.history.path_histories import PathHistory, Record

__all__ = ["bytes_added_by"]


def bytes_added_by(
    reader: BlobReader, versions: Mapping[bytes, Sequence[Record]], stored: Callable[[bytes], PathHistory | None]
) -> int:
    """Return what versions add: each content once, and of one that follows another at its path what differs.

    Nothing is added by a content that a path had last, that was renamed or linked, or restored from an earlier commit.
    The cost is proportional to the versions and to the differences of large files.

    Args:
        reader: has the lists of chunks of all contents.
        versions: by path, oldest first, with their contents.
        stored: returns a path's history before them.
    """
    sources = {record.source for records in versions.values() for record in records if record.source is not None}
    last = {path: _last_content(stored(path)) for path in {*versions, *sources}}
    known = {content.id for content in last.values() if content is not None}
    total = 0
    for path, records in versions.items():
        before = last[path]
        for record in records:
            content = record.content
            if content is None:
                continue
            if content.id not in known:
                known.add(content.id)
                total += bytes_added(reader, before, content) if record.op != "restore" else 0
            before = content
    return total


def _last_content(history: PathHistory | None) -> Content | None:
    records = reversed(history.tail) if history is not None else ()
    return next((record.content for record in records if record.content is not None), None)
