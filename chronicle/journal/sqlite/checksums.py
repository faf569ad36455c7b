"""Checksums and heads of a closed journal, in two files beside it.

SQLite detects damage to its own structure, and the chains detect changed events. Neither covers unchained rows
(inboxes, outboxes, leases), nor a table that looks empty because a page of it was lost. So the last process that closes
a journal writes two files beside it, once the write-ahead log is removed:

- ``journal.db-sums``, a checksum of each page of the file, and one of the heads. Opening the journal for writing
  removes it first. While it exists, both files must match it, to the byte. It is never written while there is a log:
  beside a log that is not empty it is outdated (in a copy, or because a power loss undid its removal), and is ignored.
- ``journal.db-heads``, a line of JSON for each session and each branch, with their heads, after a line that names the
  format and counts them. It stays while the journal is written to. As a journal records every removal
  (`chronicle.journal.chain`), it names the least that must exist.

A journal that was not closed cleanly (killed, or in use) has no sums, and the heads of an earlier close. For a journal
of more than `MAX_BYTES`, where hashing would take long, neither file is written: such a journal has no sums.

Both are replaced atomically and synced, so a malformed one is damage. Other databases of a home have checksums of the
same form, without heads (`chronicle.journal.sqlite.watched_database`).
"""

from __future__ import annotations

import json
import os
import sqlite3
import urllib.parse
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from blake3 import blake3

from chronicle.errors import Corrupt, UnsupportedFormat
from chronicle.journal.sqlite import raw_reads
from chronicle.system.atomic_files import replacing, sync_directory
from chronicle.system.permissions import private_mode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "LOOK_BYTES",
    "MAX_BYTES",
    "damaged",
    "damaged_page",
    "forget_sums",
    "had_sessions",
    "has_log",
    "heads_path",
    "keep",
    "keep_sums",
    "missing",
    "refuse_loss",
    "sums_path",
    "version_at_rest",
]

MAX_BYTES: Final = 256 * 1024 * 1024
"""Hashing that many bytes takes 0.1 s, and reading them from the page cache as long again."""
LOOK_BYTES: Final = 64 * 1024 * 1024
"""Up to this size a file is compared with its checksums at each open: 25 ms with a warm page cache."""
_FORMAT: Final = 1
_PAGE_BYTES: Final = 16384
_SUM_BYTES: Final = 8
_VERSION_AT: Final = 60
_VERSION_BYTES: Final = 4
"""The offset of ``PRAGMA user_version`` in SQLite's header."""


def sums_path(path: Path) -> Path:
    """Return the path of a journal's checksums."""
    return path.with_name(path.name + "-sums")


def heads_path(path: Path) -> Path:
    """Return the path of a journal's heads."""
    return path.with_name(path.name + "-heads")


def _log_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def forget_sums(path: Path) -> None:
    """Remove the checksums before the first write; the caller syncs the directory.

    Raises:
        OSError: the file cannot be removed.
    """
    sums_path(path).unlink(missing_ok=True)


def has_log(path: Path) -> bool:
    """Whether there is a write-ahead log with content, so that the file alone is not the journal."""
    try:
        return _log_path(path).stat().st_size > 0
    except FileNotFoundError:
        return False


def version_at_rest(path: Path) -> int:
    """Return the format version of a journal that no process has open, without a connection; 0 for an empty file.

    Raises:
        OSError: the file cannot be read.
    """
    with raw_reads.reading(path) as fd:
        return int.from_bytes(os.pread(fd, _VERSION_BYTES, _VERSION_AT), "big")


def keep(path: Path) -> None:
    """Write both files. The caller holds the writer lock and has closed its connections.

    Does nothing unless the file is at rest: its log is removed, so no process has it open.

    Raises:
        OSError, sqlite3.Error: the journal could not be read, or a file not be written.
    """
    if not _is_at_rest(path):
        return
    heads = list(_heads(path))
    lines = [{"format": _FORMAT, "lines": len(heads)}, *heads]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    _replace(heads_path(path), text)
    _keep_sums(path, text.encode())


def keep_sums(path: Path) -> None:
    """Write the checksums of a database without heads; else as `keep`.

    Raises:
        OSError: the file could not be read, or its checksums not be written.
    """
    if _is_at_rest(path):
        _keep_sums(path, None)


def _is_at_rest(path: Path) -> bool:
    return not _log_path(path).exists() and 0 < path.stat().st_size <= MAX_BYTES


def _keep_sums(path: Path, heads: bytes | None) -> None:
    _replace(sums_path(path), _sums_text(path, path.stat().st_size, heads))
    sync_directory(path.parent)


def _sums_text(path: Path, size: int, heads: bytes | None) -> str:
    found: dict[str, object] = {
        "format": _FORMAT,
        "page_bytes": _PAGE_BYTES,
        "size_bytes": size,
        "sums": _sums(path).hex(),
    }
    if heads is not None:
        found["heads"] = blake3(heads).hexdigest()
    return json.dumps(found) + "\n"


def damaged_page(path: Path, max_bytes: int = MAX_BYTES) -> str | None:
    """Compare the file, and its heads, with its checksums, if there are any and there is no log.

    Args:
        path: the journal's file.
        max_bytes: a larger file is not read.

    Returns:
        the damage; ``None`` if none was found, or if there are no checksums.

    Raises:
        UnsupportedFormat: a newer version wrote the checksums.
    """
    try:
        before = sums_path(path).read_bytes()
        if has_log(path):
            return None
        size = path.stat().st_size
        if size > max_bytes:
            return None
        problem = _compare(path, size, before)
        # A writer removes the sums first: if they still exist, they were valid during the whole comparison.
        return problem if problem is not None and sums_path(path).read_bytes() == before else None
    except FileNotFoundError:
        return None


def _compare(path: Path, size: int, sums: bytes) -> str | None:
    name = sums_path(path).name
    try:
        said = json.loads(sums)
        if said["format"] > _FORMAT:
            raise _too_new(sums_path(path), said["format"])
        expected, pages, had_heads = said["size_bytes"], bytes.fromhex(said["sums"]), "heads" in said
    except (ValueError, KeyError, TypeError):
        return f"{name}, which has its checksums, is damaged"
    heads = None
    if had_heads:  # databases without heads have none
        try:
            heads = heads_path(path).read_bytes()
        except FileNotFoundError:
            return f"{heads_path(path).name}, which has its heads, is missing"
    if sums == _sums_text(path, size, heads).encode():
        return None
    if size != expected:
        return f"it has {size} bytes, and had {expected} when it was closed"
    now = _sums(path)
    for at in range(0, max(len(now), len(pages)), _SUM_BYTES):
        if now[at : at + _SUM_BYTES] != pages[at : at + _SUM_BYTES]:
            return f"its page at byte {at // _SUM_BYTES * _PAGE_BYTES} is not what was written"
    if heads is not None and said["heads"] != blake3(heads).hexdigest():
        return f"{heads_path(path).name}, which has its heads, is damaged"
    return f"{name}, which has its checksums, is damaged"


def _too_new(path: Path, found: object) -> UnsupportedFormat:
    return UnsupportedFormat(f"{path} has format {found}, and this code reads up to {_FORMAT}")


def missing(db: sqlite3.Connection, path: Path, *, names_only: bool = False) -> str | None:
    """Return what a journal has lost since its last close; ``None`` if nothing.

    Args:
        db: a connection in a read transaction.
        path: the journal's file.
        names_only: check only the sessions, not their branches.

    Raises:
        UnsupportedFormat: a newer version wrote the heads.
    """
    try:
        text = heads_path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        first, *lines = [json.loads(line) for line in text.splitlines()]
        if first["format"] > _FORMAT:
            raise _too_new(heads_path(path), first["format"])
        if first["format"] != _FORMAT or first["lines"] != len(lines):
            return f"{heads_path(path).name}, which has its heads, is damaged"
        for line in lines:
            if "session_id" in line:
                problem = _missing_session(db, line)
            else:
                problem = None if names_only else _missing_branch(db, line)
            if problem is not None:
                return problem
    except (ValueError, KeyError, TypeError):
        return f"{heads_path(path).name}, which has its heads, is damaged"
    return None


def had_sessions(path: Path) -> int:
    """Return the number of sessions at the last close, from the heads file; 0 if unknown."""
    try:
        return sum(b'"session_id"' in line for line in heads_path(path).read_bytes().splitlines())
    except OSError:
        return 0


def _missing_session(db: sqlite3.Connection, line: dict[str, Any]) -> str | None:
    session_id, names = line["session_id"], (line["name"], line["namespace"])
    name = line["name"]
    row = db.execute(
        "SELECT name, namespace, epoch, last_position, catalogue_size FROM session WHERE session_id = ?", (session_id,)
    ).fetchone()
    if row is None:
        gone = db.execute("SELECT 1 FROM tombstone WHERE session_id = ?", (session_id,)).fetchone()
        return None if gone else f"{name} ({session_id}) was there when it was closed, and is gone without a tombstone"
    if row[:2] != names or any(now < then for now, then in zip(row[2:], line["at_least"], strict=True)):
        return f"the record of {name} ({session_id}) is older than when it was closed"
    return None


def _missing_branch(db: sqlite3.Connection, line: dict[str, Any]) -> str | None:
    problem = _changed_branch(db, line)
    return None if problem is None or _was_deleted(db, line) else problem


def _was_deleted(db: sqlite3.Connection, line: dict[str, Any]) -> bool:
    """Whether a branch, or its session, was deleted; an imported archive may have restored the branch, shorter."""
    row = db.execute(
        "SELECT 1 FROM catalogue WHERE branch_id = ? AND change = 'deleted' UNION ALL "
        "SELECT 1 FROM tombstone WHERE session_id = ?",
        (line["branch_id"], line["of"]),
    ).fetchone()
    return row is not None


def _changed_branch(db: sqlite3.Connection, line: dict[str, Any]) -> str | None:
    branch_id, seq = line["branch_id"], line["seq"]
    row = db.execute("SELECT key, seq, folded_seq, hash FROM branch WHERE branch_id = ?", (branch_id,)).fetchone()
    if row is None:
        return f"branch {branch_id} was there when it was closed, and is gone"
    key, now, folded, digest = row
    if now < seq:
        return f"branch {branch_id} has {now} events, and had {seq} when it was closed"
    if now > seq:
        event = db.execute("SELECT hash FROM event WHERE id = ?", (key << 32 | seq,)).fetchone()
        if event is None:  # folded since, or the head belonged to the parent at the close
            return None if seq <= folded or not line["own"] else f"branch {branch_id} lacks event {seq}"
        digest = event[0]
    if bytes(digest).hex() != line["hash"]:
        return f"event {seq} of branch {branch_id} is another one than when it was closed"
    return None


def _heads(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the heads file, from a journal at rest."""
    with closing(sqlite3.connect(f"file:{urllib.parse.quote(os.fspath(path))}?mode=ro&immutable=1", uri=True)) as db:
        for session_id, name, namespace, *at_least in db.execute(
            "SELECT session_id, name, namespace, epoch, last_position, catalogue_size FROM session ORDER BY key"
        ):
            yield {"session_id": session_id, "name": name, "namespace": namespace, "at_least": at_least}
        for branch_id, seq, digest, parent_seq, folded_seq, session_id in db.execute(
            "SELECT branch_id, seq, hash, parent_seq, folded_seq, session_id FROM branch "
            "JOIN session ON session.key = branch.session ORDER BY branch.key"
        ):
            own = seq > max(parent_seq, folded_seq)
            yield {"branch_id": branch_id, "seq": seq, "hash": bytes(digest).hex(), "own": own, "of": session_id}


def _sums(path: Path) -> bytes:
    found, at = bytearray(), 0
    with raw_reads.reading(path) as fd:
        while page := os.pread(fd, _PAGE_BYTES, at):
            found += blake3(page).digest(length=_SUM_BYTES)
            at += len(page)
    return bytes(found)


def _replace(path: Path, text: str) -> None:
    with replacing(path) as partial:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, private_mode(path.parent))
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())


def damaged(path: Path, problem: str) -> Corrupt:
    """Return the error for a damaged journal."""
    return Corrupt(
        f"{path} is damaged: {problem}; put it back from a backup, with its -wal, -sums and -heads, without those that "
        f"the backup lacks. If an older version or another program wrote to it since, remove {path.name}-sums; to go "
        f"on with the file as it is, remove {path.name}-heads too",
        str(path),
    )


def refuse_loss(path: Path) -> None:
    """Refuse to create a journal in place of a lost one.

    Raises:
        Corrupt: the file is missing or empty, and a journal with sessions was closed there.
    """
    sessions = had_sessions(path)
    if sessions and (not path.exists() or not path.stat().st_size):
        raise Corrupt(
            f"{path} is {'empty' if path.exists() else 'gone'}, and it had {sessions} sessions when it was closed, as "
            f"{heads_path(path).name} says: put it back from a backup, or remove {heads_path(path).name} to begin anew"
        )
