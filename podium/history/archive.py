"""Archives: one agent in one file, with its events, inherited ones included, and every blob that they reach.

The file is a ZIP archive, so that any tool can inspect it::

    archive.json            its table of contents: `Manifest`, as JSON
    events/<n>.jsonl        the events of the n-th branch, oldest first, one a line, with the journal's field names
    blobs/<id>              each blob by its id

Events are stored as they were sealed, so the chain verifies in the file as in the journal, and an agent has the same
head everywhere. If older history was folded, the file begins with the mark, and has the hash before it. An import
writes nothing before the whole archive is verified: the chain of events, every blob against its id, and that no blob is
missing.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Self, cast

from chronicle.blobs.ident import blob_id
from chronicle.blobs.readers import RecordingReader
from chronicle.canonical import decode
from chronicle.errors import Corrupt, InvalidInput, NotFound, UnsupportedFormat
from chronicle.ids import BlobId, BranchId
from chronicle.journal.chain import check_events, empty_head
from chronicle.journal.event_codec import event_from_object, event_object
from chronicle.journal.payloads import payload_bytes
from chronicle.journal.records import Head
from chronicle.system.atomic_files import replacing, sync_file
from chronicle.workspace.check.verify import TreeChecker
from podium.agent_record import read_agent, retry_if_folded, trees_of
from podium.artifacts.artifacts import contents_of
from podium.errors import ArchiveNotFound
from podium.events import FULL_STATE_EVENTS
from podium.history.compare import lineage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Event
    from podium.address import Address

__all__ = ["Archive", "ArchivedBranch", "Manifest", "export_agent"]

FORMAT: Final = 1
_MANIFEST: Final = "archive.json"
_NOTHING: Final = "; nothing was imported"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The date of every member, so that equal agents have equal files."""


@dataclass(frozen=True, slots=True)
class ArchivedBranch:
    """One branch of an agent's line of events."""

    branch_id: BranchId
    after_seq: int
    """The seq before its first event: of the last event of the branch before; for the oldest, of the folded history, or
    0."""
    to_seq: int
    """The seq of its last event that the agent reads."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The table of contents of an archive."""

    agent: str
    head: Head
    branches: tuple[ArchivedBranch, ...]
    """Oldest first; the last one is the agent's own."""
    events: int
    blobs: int
    base: Head | None = None
    """The head before the first event, if earlier history was folded."""


def export_agent(store: JournalStore, blobs: BlobReader, address: Address, path: Path) -> Manifest:
    """Write an agent at its head to a file, without its inbox; it may be running.

    Everything is verified while it is written. The file is complete, or absent.

    Raises:
        UnknownAgent: there is none, or it never started.
        Corrupt: stored data is damaged.
        OSError: the file cannot be written.
    """
    branch_id = read_agent(store, blobs, address).head.branch_id
    with replacing(path) as partial:

        def write() -> Manifest:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
                return _write(archive, store, blobs, address, store.head(branch_id))

        manifest = retry_if_folded(store, branch_id, write)
        sync_file(partial)
    return manifest


def _write(archive: zipfile.ZipFile, store: JournalStore, blobs: BlobReader, address: Address, head: Head) -> Manifest:
    reader = RecordingReader(blobs)
    checker = TreeChecker(reader)
    branches: list[ArchivedBranch] = []
    line = lineage(store, head.branch_id, head.seq)
    base = _base(store, line[0][0])
    checked = first = base or empty_head(line[0][0])
    for number, (branch_id, to_seq) in enumerate(line):
        branch = ArchivedBranch(branch_id, checked.seq, to_seq)
        branches.append(branch)
        with archive.open(_info(f"events/{number}.jsonl"), "w") as file:
            for event in store.events(branch_id, branch.after_seq, to_seq):
                checked = check_events(checked, [event])
                _check_blobs(event, reader, checker)
                file.write(_line(event))
    for identifier in sorted(reader.seen):
        archive.writestr(_info(f"blobs/{identifier}"), blobs.get(identifier))
    manifest = Manifest(str(address), checked, tuple(branches), checked.seq - first.seq, len(reader.seen), base)
    fields = asdict(manifest)
    if base is None:
        del fields["base"]
    for place in fields.keys() & {"head", "base"}:
        del fields[place]["ts"]  # the events have it
    archive.writestr(_info(_MANIFEST), json.dumps({"format": FORMAT, **fields}, indent=1))
    return manifest


def _base(store: JournalStore, branch_id: BranchId) -> Head | None:
    """Return the head before the first event of a folded branch: its hash is that event's previous hash."""
    folded_seq = store.branch(branch_id).folded_seq
    if not folded_seq:
        return None
    event = next(store.events(branch_id, folded_seq, folded_seq + 1))
    return Head(branch_id, folded_seq, None, event.prev_hash, event.turn)


class Archive:
    """An archive, open for reading. Use it as a context manager.

    Args:
        path: the file.

    Raises:
        Corrupt: it is not an archive, or its table of contents is damaged.
        UnsupportedFormat: a newer version wrote it.
        ArchiveNotFound: there is no such file.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._checked = False
        try:
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise ArchiveNotFound(f"there is no file {path}; name an exported archive") from None
        except zipfile.BadZipFile as error:
            raise Corrupt(f"{path} is not an archive of an agent, or its end is cut off: {error}") from error
        try:
            self.manifest = self._read_manifest()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._zip.close()

    def check(self) -> None:
        """Verify the chain of events and every blob, once.

        Raises:
            Corrupt: something is damaged or missing; the message has its position in the file.
        """
        if not self._checked:
            self._check()
            self._checked = True

    def _check(self) -> None:
        checker = TreeChecker(self)
        branches = self.manifest.branches
        head = self.manifest.base or empty_head(branches[0].branch_id if branches else BranchId(""))
        for number, branch in enumerate(branches):
            if branch.after_seq != head.seq:
                raise self._damaged(_MANIFEST, f"branch {branch.branch_id} does not begin where the one before ends")
            for line, event in enumerate(self.events(number), start=1):
                where = f"events/{number}.jsonl line {line}"
                try:
                    head = check_events(head, [event])
                    _check_blobs(event, self, checker)
                except (Corrupt, NotFound) as error:
                    raise self._damaged(where, str(error)) from error
                if number + line == 1 and self.manifest.base is not None and event.type not in FULL_STATE_EVENTS:
                    raise self._damaged(where, f"history cannot begin with {event.type}")
                if event.branch_id != branch.branch_id:
                    raise self._damaged(where, f"an event of branch {event.branch_id}, not of {branch.branch_id}")
            if head.seq != branch.to_seq:
                raise self._damaged(f"events/{number}.jsonl", f"ends at event {head.seq}, not at {branch.to_seq}")
        if head != self.manifest.head:
            raise self._damaged(_MANIFEST, "the last event is not the head that it names")

    def events(self, number: int) -> Iterator[Event]:
        """Yield the events of the n-th branch.

        Raises:
            Corrupt: a line cannot be read.
        """
        name = f"events/{number}.jsonl"
        for line, text in enumerate(self._read(name).splitlines(), start=1):
            try:
                yield event_from_object(cast("dict[str, Any]", decode(text)), erased=True)
            except (ValueError, TypeError, InvalidInput) as error:
                raise self._damaged(f"{name} line {line}", f"not an event: {error}") from error

    def blob_ids(self) -> list[BlobId]:
        """Return the ids of its blobs."""
        return [BlobId(name.removeprefix("blobs/")) for name in self._zip.namelist() if name.startswith("blobs/")]

    def get(self, identifier: BlobId) -> bytes:
        """Return a blob; see `chronicle.blobs.port.BlobReader.get`."""
        data = self._read(f"blobs/{identifier}")
        if blob_id(data) != identifier:
            raise self._damaged(f"blobs/{identifier}", "its bytes do not have its id")
        return data

    def _read(self, name: str) -> bytes:
        try:
            return self._zip.read(name)
        except KeyError:
            raise self._damaged(name, "it is missing") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise self._damaged(name, str(error)) from error

    def _read_manifest(self) -> Manifest:
        try:
            fields = cast("dict[str, Any]", decode(self._read(_MANIFEST)))
            if fields["format"] > FORMAT:
                raise UnsupportedFormat(
                    f"a newer version wrote {self.path}: its format is {fields['format']}, this version reads up to "
                    f"{FORMAT}"
                )
            return Manifest(
                agent=str(fields["agent"]),
                head=Head(**fields["head"]),
                branches=tuple(ArchivedBranch(**branch) for branch in fields["branches"]),
                events=fields["events"],
                blobs=fields["blobs"],
                base=Head(**fields["base"]) if "base" in fields else None,
            )
        except (ValueError, TypeError, KeyError, InvalidInput) as error:
            raise self._damaged(_MANIFEST, f"it cannot be read: {error}") from error

    def _damaged(self, where: str, why: str) -> Corrupt:
        """Return the error for damage; ``why`` may be the text of such an error about a part of it."""
        inner = why.replace(f"{self.path}: ", "").removesuffix(_NOTHING)
        return Corrupt(f"{self.path}: {where}: {inner}{_NOTHING}")


def _check_blobs(event: Event, reader: BlobReader, checker: TreeChecker) -> None:
    """Read and verify all blobs that an event reaches."""
    if event.erased:
        return
    payload = decode(payload_bytes(event, reader))
    for tree in trees_of(payload) if "." in event.type and isinstance(payload, dict) else ():
        checker.check(tree)
    for content in contents_of(event, payload):
        checker.check_content(content, "its content")


def _line(event: Event) -> bytes:
    described = event_object(event, erased=True)
    return json.dumps(described, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info
