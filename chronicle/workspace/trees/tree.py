"""Directory trees as blobs. A directory is a map (`chronicle.workspace.trees.nodes`) from names to encoded entries.

A tree's id is that of its root directory's map, and depends on content alone: names, kinds, permission bits, bytes,
extended attributes and which names are one file. Times and inode numbers are not content. The root has no
name and so no entry; a mode, owner or attributes that differ from `ROOT_DEFAULT` are stored in its map under ``.``, a
name that no file can have. `EMPTY` is the id of the empty directory; it needs no blob.

A directory's entry holds the id of its subtree, so moving a directory moves its entry to another name.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgpack

from chronicle.blobs.ident import blob_id, from_raw, to_raw
from chronicle.errors import Corrupt, InvalidInput, UnsupportedFormat
from chronicle.workspace.content.content import WHOLE_BYTES, Content
from chronicle.workspace.trees import nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chronicle.blobs.port import BlobReader
    from chronicle.ids import BlobId

__all__ = [
    "EMPTY",
    "ROOT_DEFAULT",
    "Entry",
    "Kind",
    "check_name",
    "decode_entry",
    "diff_trees",
    "encode_entry",
    "entry_at",
    "list_dir",
    "map_root",
    "update_tree",
    "walk",
]

ENTRY_FORMAT: Final = 1
"""The first byte of every encoded entry."""
MAX_NAME_BYTES: Final = 255
"""The kernel's limit (NAME_MAX)."""
_MODE_MASK: Final = 0o7777
_SYMLINK_MODE: Final = 0o777
_ROOT_NAME: Final = b"."
_UID, _GID, _LINK, _XATTRS = 1, 2, 3, 4


class Kind(enum.Enum):
    """The type of an entry."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    CHAR = "char"
    """A character device."""
    BLOCK = "block"
    """A block device."""


_WHOLE, _CHUNKED, _DIR, _SYMLINK, _FIFO, _SOCKET, _CHAR, _BLOCK = 1, 2, 3, 4, 5, 6, 7, 8
_BARE_CODES: Final = {Kind.FIFO: _FIFO, Kind.SOCKET: _SOCKET}
_BARE_KINDS: Final = {code: kind for kind, code in _BARE_CODES.items()}
_DEVICE_CODES: Final = {Kind.CHAR: _CHAR, Kind.BLOCK: _BLOCK}
_DEVICE_KINDS: Final[dict[object, Kind]] = {code: kind for kind, code in _DEVICE_CODES.items()}
_KINDS: Final = {_WHOLE: Kind.FILE, _CHUNKED: Kind.FILE, _DIR: Kind.DIR, _SYMLINK: Kind.SYMLINK, **_BARE_KINDS}

EMPTY: Final = blob_id(nodes.encode_node(0, (), ()))
"""The id of the empty directory. It is a constant: neither stored nor read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory."""

    kind: Kind
    mode: int
    """Permission bits with setuid, setgid and sticky, 0–0o7777; always 0o777 for a symlink."""
    content: Content | None = None
    """Of a file."""
    subtree: BlobId | None = None
    """Of a directory: the id of its map. ``None`` only in arguments of `update_tree`, for "unchanged"."""
    target: bytes = b""
    """Of a symlink."""
    uid: int | None = None
    """The owner; ``None`` is the workspace's owner, so that a tree is the same for another user."""
    gid: int | None = None
    """The group; ``None`` likewise."""
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    """Names and values of extended attributes, ascending by name."""
    link: bytes | None = None
    """Identifies the names of one hard-linked file: the first of their paths in the tree, in byte order. ``None`` for a
    file with one name. The builder of the tree keeps this canonical."""
    device: int | None = None
    """Of a device: its number, as in ``st_rdev``."""

    def __post_init__(self) -> None:
        if not 0 <= self.mode <= _MODE_MASK:
            raise InvalidInput(f"mode {self.mode:#o} is outside 0–0o7777; the kind of a file is not part of it")
        kind = self.kind
        if (self.content is not None) != (kind is Kind.FILE) or bool(self.target) != (kind is Kind.SYMLINK):
            raise InvalidInput(
                f"a {kind.value} entry needs content if it is a file, a target if it is a symlink, and else neither"
            )
        if (self.device is not None) != (kind in _DEVICE_CODES) or (self.device or 0) < 0:
            raise InvalidInput(f"a {kind.value} entry needs a device number if it is a device, and else none")
        if kind is Kind.SYMLINK and self.mode != _SYMLINK_MODE:
            raise InvalidInput(f"a symlink has mode 0o777, not {self.mode:#o}")
        if kind is Kind.DIR and self.link is not None:
            raise InvalidInput("a directory has one name; it cannot be hard-linked")
        if kind is not Kind.DIR and self.subtree is not None:
            raise InvalidInput(f"a {kind.value} entry has no subtree")
        if self.xattrs:
            names = [name for name, _ in self.xattrs]
            if names != sorted(set(names)):
                raise InvalidInput(f"extended attributes must be sorted by name, each once: {names}")


ROOT_DEFAULT: Final = Entry(Kind.DIR, 0o755, subtree=EMPTY)
"""The root of a tree that stores no entry for it (its subtree is the tree's id)."""


def encode_entry(entry: Entry) -> bytes:
    """Return the canonical bytes of an entry: equal entries, equal bytes.

    Raises:
        InvalidInput: a directory without a subtree.
    """
    fields: list[object]
    if entry.content is not None:
        code = _CHUNKED if entry.content.chunked else _WHOLE
        fields = [code, entry.mode, entry.content.size, to_raw(entry.content.id)]
    elif entry.kind is Kind.DIR:
        if entry.subtree is None:
            raise InvalidInput("a directory entry without a subtree cannot be stored")
        fields = [_DIR, entry.mode, to_raw(entry.subtree)]
    elif entry.kind is Kind.SYMLINK:
        fields = [_SYMLINK, entry.mode, entry.target]
    elif entry.device is not None:
        fields = [_DEVICE_CODES[entry.kind], entry.mode, entry.device]
    else:
        fields = [_BARE_CODES[entry.kind], entry.mode]
    extra: dict[int, object] = {}
    if entry.uid is not None:
        extra[_UID] = entry.uid
    if entry.gid is not None:
        extra[_GID] = entry.gid
    if entry.link is not None:
        extra[_LINK] = entry.link
    if entry.xattrs:
        extra[_XATTRS] = entry.xattrs
    if extra:
        fields.append(extra)
    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return bytes((ENTRY_FORMAT,)) + packed


def decode_entry(data: bytes) -> Entry:
    """Decode an entry.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: not an entry.
    """
    if data[:1] != bytes((ENTRY_FORMAT,)):
        if data and ENTRY_FORMAT < data[0] < 0x20:  # version bytes stay below the printable ones
            raise UnsupportedFormat(f"a directory entry has format {data[0]}; this code reads {ENTRY_FORMAT}")
        raise Corrupt(f"not a directory entry: {data[:16].hex()}")
    try:
        return _decode_fields(msgpack.unpackb(memoryview(data)[1:], use_list=False, raw=False, strict_map_key=False))
    except (ValueError, TypeError, KeyError, IndexError, msgpack.UnpackException, InvalidInput) as error:
        raise Corrupt(f"not a directory entry: {data[:16].hex()}") from error


def entry_kind(data: bytes) -> Kind:
    """Return the kind of an encoded entry without decoding the rest: for long listings.

    Raises:
        UnsupportedFormat: written by a newer version.
        Corrupt: not an entry.
    """
    # The version's byte, the head of an array of up to 15, the code: see `encode_entry`.
    kind = _KINDS.get(data[2]) if len(data) > 2 and data[0] == ENTRY_FORMAT and data[1] & 0xF0 == 0x90 else None
    return kind if kind is not None else decode_entry(data).kind


def _decode_fields(fields: tuple[object, ...]) -> Entry:
    code, mode = fields[0], fields[1]
    known = _FIELD_COUNTS[code]
    extra = fields[known] if len(fields) > known else {}
    if not isinstance(mode, int) or not isinstance(extra, dict) or len(fields) > known + 1:
        raise TypeError
    uid, gid, link, xattrs = extra.get(_UID), extra.get(_GID), extra.get(_LINK), extra.get(_XATTRS, ())
    if code in (_WHOLE, _CHUNKED):
        size, raw = fields[2], fields[3]
        if not isinstance(size, int) or not isinstance(raw, bytes) or (size > WHOLE_BYTES) != (code == _CHUNKED):
            raise TypeError
        content = Content(from_raw(raw), size, chunked=code == _CHUNKED)
        return Entry(Kind.FILE, mode, content=content, uid=uid, gid=gid, xattrs=xattrs, link=link)
    if code == _DIR:
        raw = fields[2]
        if not isinstance(raw, bytes):
            raise TypeError
        return Entry(Kind.DIR, mode, subtree=from_raw(raw), uid=uid, gid=gid, xattrs=xattrs, link=link)
    if code == _SYMLINK:
        target = fields[2]
        if not isinstance(target, bytes):
            raise TypeError
        return Entry(Kind.SYMLINK, mode, target=target, uid=uid, gid=gid, xattrs=xattrs, link=link)
    if code in _DEVICE_KINDS:
        device = fields[2]
        if type(device) is not int:  # a bool would pass for a number
            raise TypeError
        return Entry(_DEVICE_KINDS[code], mode, uid=uid, gid=gid, xattrs=xattrs, link=link, device=device)
    if not isinstance(code, int):
        raise TypeError
    return Entry(_BARE_KINDS[code], mode, uid=uid, gid=gid, xattrs=xattrs, link=link)


_FIELD_COUNTS: Final[dict[object, int]] = {
    _WHOLE: 4,
    _CHUNKED: 4,
    _DIR: 3,
    _SYMLINK: 3,
    _FIFO: 2,
    _SOCKET: 2,
    _CHAR: 3,
    _BLOCK: 3,
}


def check_name(name: bytes) -> None:
    """Check that a directory entry can have a name.

    Raises:
        InvalidInput: empty, ``.``, ``..``, longer than 255 bytes, or with a slash or a zero byte in it.
    """
    if not name or name in (b".", b"..") or len(name) > MAX_NAME_BYTES or b"/" in name or b"\0" in name:
        raise InvalidInput(f"{name!r} cannot be the name of a file")


def map_root(subtree: BlobId) -> BlobId | None:
    """Return the root of a directory's map as `chronicle.workspace.trees.nodes` takes it: ``None`` if it is empty."""
    return None if subtree == EMPTY else subtree


def entry_at(reader: BlobReader, tree_id: BlobId, path: bytes) -> Entry | None:
    """Return the entry at a path of a tree, ``b""`` being its root; ``None`` if absent. Symlinks are not followed."""
    if not path:
        stored = nodes.lookup(reader, map_root(tree_id), _ROOT_NAME)
        return replace(decode_entry(stored) if stored is not None else ROOT_DEFAULT, subtree=tree_id)
    at = tree_id
    entry: Entry | None = None
    for name in path.split(b"/"):
        if entry is not None:
            if entry.subtree is None:
                return None
            at = entry.subtree
        stored = nodes.lookup(reader, map_root(at), name) if name != _ROOT_NAME else None
        if stored is None:
            return None
        entry = decode_entry(stored)
    return entry


def list_dir(reader: BlobReader, tree_id: BlobId, after: bytes | None = None) -> Iterator[tuple[bytes, Entry]]:
    """Yield the names and entries of one directory in byte order, from the first name after ``after`` on."""
    for name, value in nodes.items(reader, map_root(tree_id), after):
        if name != _ROOT_NAME:
            yield name, decode_entry(value)


def walk(reader: BlobReader, tree_id: BlobId) -> Iterator[tuple[bytes, Entry]]:
    """Yield every path below the root and its entry, each directory before its content, names in byte order."""
    stack = [(b"", list_dir(reader, tree_id))]
    while stack:
        prefix, listing = stack[-1]
        for name, entry in listing:
            path = prefix + name
            yield path, entry
            if entry.subtree is not None:
                stack.append((path + b"/", list_dir(reader, entry.subtree)))
                break
        else:
            stack.pop()


def update_tree(buffer: nodes.NodeBuffer, tree_id: BlobId, changes: Mapping[bytes, Entry | None]) -> BlobId:
    """Return the id of the tree with changes applied.

    New nodes are added to the buffer; only dirty directories are read.

    A change puts an entry at a path, or removes the entry and its subtree (``None``; an absent one is ignored). A
    directory's entry with a subtree puts that subtree, so a move is ``{old: None, new: entry}``; one without a subtree
    keeps the present one (an empty one, if no directory was there). Changes below it are applied on top, in whatever
    order the mapping has them. ``b""`` changes the root: its mode, owner and attributes, and its whole content if the
    entry has a subtree.

    Raises:
        InvalidInput: a malformed path; a change below a path that is no directory in the new tree; the root removed or
            made anything but a directory.
    """
    return _TreeEdit(buffer, tree_id, changes).apply()


class _TreeEdit:
    """One `update_tree`: reads the dirty directories top down, writes them bottom up."""

    def __init__(self, buffer: nodes.NodeBuffer, tree_id: BlobId, changes: Mapping[bytes, Entry | None]) -> None:
        self._buffer = buffer
        self._changes = changes
        self._tree_id = tree_id
        self._children: dict[bytes, set[bytes]] = {b"": set()}
        """Dirty directory -> names in it that change or are dirty directories."""

    def apply(self) -> BlobId:
        for path, entry in self._changes.items():
            self._mark(path, entry)
        entries = self._resolve()
        results: dict[bytes, BlobId] = {}
        for directory in sorted(entries, key=_depth, reverse=True):
            edits: dict[bytes, bytes | None] = {}
            for name in self._children[directory]:
                path = _join(directory, name)
                if path in results:
                    edits[name] = encode_entry(replace(entries[path], subtree=results[path]))
                elif path in self._changes:
                    entry = self._changes[path]
                    edits[name] = None if entry is None else encode_entry(entry)
            if not directory and b"" in self._changes:
                root = replace(entries[b""], subtree=EMPTY)
                edits[_ROOT_NAME] = None if root == ROOT_DEFAULT else encode_entry(root)
            subtree = entries[directory].subtree
            assert subtree is not None
            results[directory] = nodes.update(self._buffer, map_root(subtree), edits) or EMPTY
        return results[b""]

    def _mark(self, path: bytes, entry: Entry | None) -> None:
        """Note a changed path and the directories above it as dirty."""
        if not path:
            if entry is None or entry.kind is not Kind.DIR:
                raise InvalidInput("the root of a tree is a directory and stays one")
            return
        if path.startswith(b"/"):
            raise InvalidInput(f"{path!r} cannot be the name of a file in a tree; leave out the leading slash")
        if entry is not None and entry.kind is Kind.DIR and entry.subtree is None:
            self._children.setdefault(path, set())
        while path:
            directory, _, name = path.rpartition(b"/")
            check_name(name)
            known = self._children.setdefault(directory, set())
            if name in known:
                return
            known.add(name)
            path = directory

    def _resolve(self) -> dict[bytes, Entry]:
        """Return the entry of each dirty directory of the new tree, with the subtree to edit."""
        root_change = self._changes.get(b"")
        root_now = entry_at(self._buffer, self._tree_id, b"")
        assert root_now is not None
        entries = {b"": root_now}
        if root_change is not None:
            entries[b""] = replace(root_change, subtree=root_change.subtree or self._tree_id)
        for directory in sorted(self._children, key=_depth):
            parent = entries.get(directory)
            if parent is None:
                self._refuse_content(directory)
                continue
            assert parent.subtree is not None
            below = [name for name in self._children[directory] if _join(directory, name) in self._children]
            stored = nodes.lookup_many(self._buffer, map_root(parent.subtree), below)
            for name in below:
                path = _join(directory, name)
                now = decode_entry(stored[name]) if name in stored else None
                then = self._changes.get(path, now)
                if then is not None and then.kind is Kind.DIR:
                    kept = now.subtree if now is not None and now.subtree is not None else EMPTY
                    entries[path] = then if then.subtree is not None else replace(then, subtree=kept)
        return entries

    def _refuse_content(self, directory: bytes) -> None:
        """Refuse entries in a path that will not be a directory; removals are ignored."""
        for name in self._children[directory]:
            path = _join(directory, name)
            if self._changes.get(path) is not None:
                raise InvalidInput(f"{path!r} cannot be put: {directory!r} is no directory in the new tree")


def diff_trees(
    reader: BlobReader, old: BlobId, new: BlobId, *, whole: bool = False
) -> Iterator[tuple[bytes, Entry | None, Entry | None]]:
    """Yield ``(path, old entry, new entry)`` where two trees differ, parents first; ``None`` for an absent entry.

    A directory that was added or removed is followed by its content, unless ``whole`` asks for it alone. A directory of
    both trees whose content differs is itself yielded only if its own mode, owner or attributes differ. ``b""`` is the
    root. Shared subtrees are not read.
    """
    before, after = entry_at(reader, old, b""), entry_at(reader, new, b"")
    assert before is not None
    assert after is not None
    if replace(before, subtree=EMPTY) != replace(after, subtree=EMPTY):
        yield b"", before, after
    stack = [(b"", nodes.diff(reader, map_root(old), map_root(new)))]
    while stack:
        prefix, differing = stack[-1]
        for name, was, now in differing:
            if name == _ROOT_NAME:
                continue
            left = decode_entry(was) if was is not None else None
            right = decode_entry(now) if now is not None else None
            path = prefix + name
            left_dir = left.subtree if left is not None else None
            right_dir = right.subtree if right is not None else None
            both = left is not None and right is not None and left_dir is not None and right_dir is not None
            if not both or replace(left, subtree=EMPTY) != replace(right, subtree=EMPTY):  # type: ignore[type-var]
                yield path, left, right
            if left_dir != right_dir and (both or not whole):
                below = nodes.diff(reader, map_root(left_dir or EMPTY), map_root(right_dir or EMPTY))
                stack.append((path + b"/", below))
                break
        else:
            stack.pop()


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _depth(path: bytes) -> int:
    return path.count(b"/") + 1 if path else 0
