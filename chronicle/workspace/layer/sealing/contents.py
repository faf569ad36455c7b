"""The first pass of a seal: the contents of versions that are on disk only."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from chronicle.errors import Corrupt, NotFound
from chronicle.workspace.content import content as contents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chronicle.workspace.content.content import Content
    from chronicle.workspace.history.path_histories import Record
    from chronicle.workspace.layer.disk.data_file import LocalContent
    from chronicle.workspace.layer.disk.files import LayerFiles
    from chronicle.workspace.trees.nodes import NodeBuffer

__all__ = ["StoredContents", "put_contents", "store_local"]

StoredContents: TypeAlias = "dict[LocalContent, Content]"
"""References to the contents of versions that were on disk only, once they are put."""


def put_contents(buffer: NodeBuffer, files: LayerFiles, records: Iterable[list[Record]]) -> StoredContents:
    """Put the contents that records hold on disk, each data file's versions in order, at the cost of their changes."""
    stored: StoredContents = {}
    for of_path in records:
        for record in of_path:
            if record.held is not None and record.held not in stored:
                before = None
                for version in tuple(record.held.data.versions):
                    stored[version] = store_local(buffer, files, version, before)
                    before = version
    return stored


def store_local(
    buffer: NodeBuffer, files: LayerFiles, held: LocalContent, before: LocalContent | None = None
) -> Content:
    """Put the content of a version that is on disk into a buffer and return its reference.

    Args:
        buffer: takes the content.
        files: has the data file.
        held: the content of the version.
        before: that of the previous version of the same data file, if it was put into the same buffer: what they have
            in common is not read again.
    """
    content = _put_local(buffer, files, held, before)
    held.content = content
    return content


def _put_local(buffer: NodeBuffer, files: LayerFiles, held: LocalContent, before: LocalContent | None) -> Content:
    small = files.read_small(held)
    if small is not None:
        return contents.store_bytes(buffer, small)
    data = held.data
    with files.open_version(held, buffer) as file:
        if before is not None:
            assert before.content is not None
            return contents.store_changes(buffer, before.content, file, data.differences(before, held))
        if data.partial is not None:  # versions differ from the stored content in written ranges only
            return contents.store_changes(buffer, data.partial.content, file, data.partial.written)
        if data.changes is not None and held is data.versions[0]:
            with suppress(NotFound, Corrupt):  # a damaged store gets its lost blobs again
                return contents.store_changes(buffer, data.changes.content, file, data.changes.ranges)
            file.seek(0)
        return contents.store_file(buffer, file)
