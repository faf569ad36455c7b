"""The difference of two trees for display: renames are detected, text is shown as a unified diff.

Only differing parts are read: a directory of 100,000 files that was moved is one `Change`. Pure but for reading blobs.
"""

from __future__ import annotations

import enum
import os
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from chronicle.workspace.content import content
from chronicle.workspace.trees import line_diff, tree
from chronicle.workspace.trees.tree import EMPTY, Entry, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = ["TEXT_BYTES", "Change", "ChangeKind", "change_object", "changes", "render"]

TEXT_BYTES: Final = 1024 * 1024
"""Larger files are reported as different and not compared line by line."""
_SNIFF_BYTES: Final = 8000
"""A zero byte among the first 8,000 makes a file binary, as in git."""


class ChangeKind(enum.Enum):
    """The kind of a change."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two trees."""

    what: ChangeKind
    path: bytes
    """In the new tree; in the old one for a removed path."""
    old: Entry | None
    """``None`` for an added path."""
    new: Entry | None
    """``None`` for a removed path."""
    old_path: bytes | None = None
    """The former path of a renamed one."""


def changes(reader: BlobReader, old: BlobId, new: BlobId) -> list[Change]:
    """Return the differences of two trees, by path; ``b""`` is the root.

    A removed path and an added one of the same content, not empty, are one rename: files with equal bytes, symlinks
    with equal targets, directories with equal subtrees, which are then not descended into. Of several candidates, one
    of the same name is preferred, then the first. The content of an added or removed directory is listed too.
    """
    changed: list[Change] = []
    gone: dict[bytes, Entry] = {}
    came: dict[bytes, Entry] = {}
    for path, was, now in tree.diff_trees(reader, old, new, whole=True):
        if was is not None and now is not None and was.kind is now.kind:
            changed.append(Change(ChangeKind.CHANGED, path, was, now))
            continue
        if was is not None:
            gone[path] = was
        if now is not None:
            came[path] = now
    renamed = _matched(gone, came)
    for side in (gone, came):
        for path, entry in list(side.items()):
            if entry.subtree is not None:
                side.update((path + b"/" + below, found) for below, found in tree.walk(reader, entry.subtree))
    renamed.extend(_matched(gone, came))
    both = gone.keys() & came.keys()
    changed.extend(Change(ChangeKind.CHANGED, path, gone[path], came[path]) for path in both)
    changed.extend(Change(ChangeKind.REMOVED, path, entry, None) for path, entry in gone.items() if path not in both)
    changed.extend(Change(ChangeKind.ADDED, path, None, entry) for path, entry in came.items() if path not in both)
    return sorted((*changed, *renamed), key=lambda change: change.path)


def render(reader: BlobReader, found: Iterable[Change]) -> Iterator[bytes]:
    """Yield the text of a unified diff, in pieces that each end in a newline. Reads the files that changed.

    The form is git's: ``old mode``, ``rename from``, ``Binary files … differ``, hunks with three lines of context.
    """
    for change in found:
        before = b"a/" + (change.path if change.old_path is None else change.old_path)
        after = b"b/" + change.path
        yield b"diff " + _quoted(before) + b" " + _quoted(after) + b"\n"
        yield from _headers(change)
        was, now = _shown(change.old), _shown(change.new)
        if was == now:
            continue
        left = _quoted(before) if was is not None else b"/dev/null"
        right = _quoted(after) if now is not None else b"/dev/null"
        if any(size > TEXT_BYTES for size, _ in filter(None, (was, now))):
            yield b"Files " + left + b" and " + right + b" differ (too large to compare by line)\n"
            continue
        old_bytes, new_bytes = (_bytes_of(reader, entry) for entry in (change.old, change.new))
        if b"\0" in old_bytes[:_SNIFF_BYTES] or b"\0" in new_bytes[:_SNIFF_BYTES]:
            yield b"Binary files " + left + b" and " + right + b" differ\n"
            continue
        head = [b"--- " + left + b"\n", b"+++ " + right + b"\n"]
        for line in line_diff.unified(_lines(old_bytes), _lines(new_bytes)):
            yield from head
            head = []
            yield line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def change_object(change: Change) -> dict[str, str | int | bool | None]:
    """Return a change as a JSON object.

    ``change`` is ``added``, ``removed``, ``changed`` or ``renamed``; sizes and hashes are those before and after, null
    for an entry without content. Only a renamed path has ``old_path``.
    """
    shown: dict[str, str | int | bool | None] = {"change": change.what.value, "path": _shown_path(change.path)}
    if change.old_path is not None:
        shown["old_path"] = _shown_path(change.old_path)
    for side, entry in (("old", change.old), ("new", change.new)):
        content = entry.content if entry is not None else None
        shown[f"{side}_size"] = content.size if content is not None else None
        shown[f"{side}_hash"] = content.id if content is not None else None
    return shown


def _shown_path(path: bytes) -> str:
    return os.fsdecode(path) or "."


def _matched(gone: dict[bytes, Entry], came: dict[bytes, Entry]) -> list[Change]:
    """Take renames out of the removed and the added paths."""
    places: defaultdict[object, list[bytes]] = defaultdict(list)
    for path, entry in sorted(gone.items(), reverse=True):
        identity = _identity(entry)
        if identity is not None:
            places[identity].append(path)
    found = []
    for same_name in (True, False):
        for path, entry in sorted(came.items()):
            identity = _identity(entry)
            candidates = places.get(identity, []) if identity is not None else []
            fitting: Callable[[bytes], bool] = (
                (lambda other, path=path: _name(other) == _name(path)) if same_name else (lambda _: True)  # type: ignore[misc]
            )
            source = next((other for other in reversed(candidates) if fitting(other)), None)
            if source is not None:
                candidates.remove(source)
                found.append(Change(ChangeKind.RENAMED, path, gone.pop(source), came.pop(path), source))
    return found


def _identity(entry: Entry) -> object | None:
    """The key by which renames are detected; ``None`` for empty entries, which are too common."""
    if entry.content is not None:
        return entry.content if entry.content.size else None
    if entry.subtree is not None:
        return (Kind.DIR, entry.subtree) if entry.subtree != EMPTY else None
    return (entry.kind, entry.target) if entry.target else None


def _headers(change: Change) -> Iterator[bytes]:
    old, new = change.old, change.new
    if old is None and new is not None:
        yield b"new %s mode %04o\n" % (new.kind.value.encode(), new.mode)
    elif new is None and old is not None:
        yield b"deleted %s mode %04o\n" % (old.kind.value.encode(), old.mode)
    elif old is not None and new is not None:
        if old.kind is not new.kind:
            yield b"old kind %s\nnew kind %s\n" % (old.kind.value.encode(), new.kind.value.encode())
        if old.mode != new.mode:
            yield b"old mode %04o\nnew mode %04o\n" % (old.mode, new.mode)
        if replace(old, mode=new.mode).xattrs != new.xattrs:
            yield b"extended attributes changed\n"
        if (old.uid, old.gid) != (new.uid, new.gid):
            yield b"owner changed\n"
        if old.kind is new.kind and old.device != new.device:
            yield b"device changed\n"
    if change.old_path is not None:
        yield b"rename from " + _quoted(change.old_path) + b"\nrename to " + _quoted(change.path) + b"\n"


def _shown(entry: Entry | None) -> tuple[int, object] | None:
    """The size and the identity of an entry's text; ``None`` if it has none."""
    if entry is None:
        return None
    if entry.content is not None:
        return entry.content.size, entry.content.id
    return (len(entry.target), entry.target) if entry.target else None


def _bytes_of(reader: BlobReader, entry: Entry | None) -> bytes:
    if entry is None:
        return b""
    return content.read(reader, entry.content) if entry.content is not None else entry.target


def _lines(data: bytes) -> list[bytes]:
    """Split lines, newlines kept; carriage returns and form feeds do not end a line."""
    parts = data.split(b"\n")
    return [*(part + b"\n" for part in parts[:-1]), *filter(None, parts[-1:])]


def _name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def _quoted(path: bytes) -> bytes:
    """A plain path as it is, any other in quotes with escapes, as git writes it."""
    if all(0x20 <= byte < 0x7F and byte not in b'"\\' for byte in path):
        return path
    escapes = {0x22: b'\\"', 0x5C: b"\\\\", 0x09: b"\\t", 0x0A: b"\\n", 0x0D: b"\\r"}
    plain = (escapes.get(byte) or (bytes((byte,)) if 0x20 <= byte < 0x7F else b"\\%03o" % byte) for byte in path)
    return b'"' + b"".join(plain) + b'"'
