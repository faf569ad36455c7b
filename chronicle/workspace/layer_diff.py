"""What changed between two trees, as text: unified diffs for text files, one line for everything else."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from chronicle.workspace import content, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.blobs.store import BlobReader
    from chronicle.ids import BlobId
    from chronicle.workspace.tree import Entry

__all__ = ["diff_text"]

TEXT_BYTES: Final = 1024 * 1024
"""Larger files are only said to differ: difflib takes seconds for them."""


def diff_text(reader: BlobReader, old: BlobId, new: BlobId) -> bytes:
    """Return the differences from one tree to another, as ``diff -u`` and git write them."""
    differing = tree.diff_trees(reader, old, new)
    return b"".join(part for path, was, now in differing for part in _one(reader, path, was, now))


def _one(reader: BlobReader, path: bytes, was: Entry | None, now: Entry | None) -> Iterator[bytes]:
    before, after = _text(reader, was), _text(reader, now)
    old_name, new_name = (b"a/" + path if was else b"/dev/null"), (b"b/" + path if now else b"/dev/null")
    if was is None and now is not None:
        yield b"new %s %04o %s\n" % (now.kind.value.encode(), now.mode, path)
    elif now is None and was is not None:
        yield b"deleted %s %04o %s\n" % (was.kind.value.encode(), was.mode, path)
    elif was is not None and now is not None and (was.kind, was.mode) != (now.kind, now.mode):
        kinds = was.kind.value.encode(), was.mode, now.kind.value.encode(), now.mode
        yield b"changed %s %04o to %s %04o " % kinds + path + b"\n"
    if before is None or after is None:
        if was is None or now is None or was.content != now.content:
            yield b"binary files %s and %s differ\n" % (old_name, new_name)
        return
    for line in difflib.diff_bytes(difflib.unified_diff, before, after, old_name, new_name):
        yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def _text(reader: BlobReader, entry: Entry | None) -> list[bytes] | None:
    """Return the lines of what is text; none for what has no content; None for what is binary or too large."""
    if entry is None:
        return []
    if entry.target:
        return [entry.target + b"\n"]
    if entry.content is None:
        return []
    if entry.content.size > TEXT_BYTES:
        return None
    data = content.read(reader, entry.content)
    return None if b"\0" in data else data.splitlines(keepends=True)
