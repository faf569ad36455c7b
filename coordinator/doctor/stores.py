"""Checks of where a home keeps its data: the journal, the blobs, and the clocks of both."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import closing
from typing import TYPE_CHECKING, Final

from chronicle.journal.examination import read_server
from chronicle.journal.places import without_password
from coordinator.doctor.finding import failed, good, skipped, warning
from coordinator.homes.opening import open_records
from coordinator.homes.postgres.skew import BOUND_MS, ahead_ms

if TYPE_CHECKING:
    from chronicle.blobs.media.fsspec_objects import RemoteObjects
    from coordinator.doctor.finding import Finding, Subject

__all__ = ["check_bucket", "check_clocks", "check_journal"]

_DOCUMENT: Final = "doctor.json"
"""The document of a home in a server that says when it was examined: one that is written durably, and read."""
_NO_HOME: Final = "no home yet: podium up makes it"


def check_journal(subject: Subject) -> Finding:
    """Reach the journal, and write beside it; in a server also what podium needs of the server."""
    if not subject.journal_url:
        return _in_directory(subject)
    place = without_password(subject.journal_url)
    server = read_server(subject.journal_url, subject.clock)
    if not server.writable:
        return failed(
            f"{place} takes no writes: it is a standby, or read-only",
            "name the primary; with several hosts in the URL add ?target_session_attrs=read-write",
        )
    if server.unsafe:
        return failed(
            f"{place} can lose what it has acknowledged: {' and '.join(server.unsafe)} is off",
            "turn it on in the server's configuration",
        )
    written = f"PostgreSQL {server.version} at {place}"
    written += f", {_write_there(subject)}" if subject.home.exists else f", {_NO_HOME}"
    if server.encrypted or server.local:
        return good(f"{written}; {'with TLS' if server.encrypted else 'on this machine'}")
    return warning(
        f"{written}; without TLS: what agents store can be read on the network",
        "add ?sslmode=verify-full to the URL, and the server's certificate authority as sslrootcert",
    )


def _write_there(subject: Subject) -> str:
    """Write and read a document of a home in a server, and open its journal."""
    documents = open_records(subject.home).documents()
    written = json.dumps({"examined_ms": subject.clock.now_ms()}).encode()
    documents.write(_DOCUMENT, written)
    assert documents.read(_DOCUMENT) is not None, "documents are not removed"
    with closing(subject.home.journal(create=False)):
        return "written and read"


def _in_directory(subject: Subject) -> Finding:
    home = subject.home
    if not home.exists:
        return skipped(f"{home.path}: {_NO_HOME}")
    with tempfile.TemporaryFile(dir=home.path) as file:
        file.write(b"doctor")
        file.flush()
        os.fsync(file.fileno())
    if (home.path / "journal.db").exists():
        home.journal(create=False).close()
    return good(f"in the directory {home.path}, which can be written")


def check_bucket(subject: Subject) -> Finding:
    """Check what podium needs of an object store: see `chronicle.blobs.media.medium_check`."""
    from chronicle.blobs.media.medium_check import check_medium  # noqa: PLC0415  for URLs only

    objects = _objects(subject)
    if objects is None:
        return skipped("blobs are in the home's directory")
    check_medium(objects, subject.clock)
    return good(f"{objects.shown}: conditional creation is honoured, and what was written is read")


def _objects(subject: Subject) -> RemoteObjects | None:
    if not subject.blobs_url:
        return None
    from chronicle.blobs.media.fsspec_objects import open_remote  # noqa: PLC0415  for URLs only

    return open_remote(subject.blobs_url)


def check_clocks(subject: Subject) -> Finding:
    """Compare this machine's clock with those of the database and the bucket."""
    from chronicle.blobs.media.medium_check import ahead_of_medium_ms  # noqa: PLC0415  for URLs only

    ahead: dict[str, int] = {}
    if subject.journal_url:
        server = read_server(subject.journal_url, subject.clock)
        ahead["the database"] = ahead_ms(server.before_ms, server.now_ms, server.after_ms)
    if (objects := _objects(subject)) is not None:
        of_bucket = ahead_of_medium_ms(objects, subject.clock)
        ahead |= {"the bucket": of_bucket} if of_bucket is not None else {}
    if not ahead:
        return skipped("no other machine's clock counts")
    skewed = [
        f"{abs(ms) / 1000:.1f} s {'ahead of' if ms > 0 else 'behind'} {whose}"
        for whose, ms in ahead.items()
        if abs(ms) > BOUND_MS
    ]
    if skewed:
        return failed(f"the clock of this machine is {' and '.join(skewed)}", "let NTP set the clocks of all machines")
    return good(f"this machine's clock is that of {' and '.join(ahead)}, within {BOUND_MS / 1000:g} s")
