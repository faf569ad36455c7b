"""The committed files of an agent, read from the blob store: no mount, no service.

Paths are relative to the workspace's root. Symlinks are shown and never followed: no path leads out of a workspace, nor
through a link within it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.errors import NotFound
from chronicle.workspace.committed.files import CommittedFiles
from chronicle.workspace.content.content import Content
from chronicle.workspace.content.content import open as open_content
from chronicle.workspace.history.oplog import read_root
from chronicle.workspace.history.view import HistoryView
from chronicle.workspace.layer.history_reader import iteration_of
from chronicle.workspace.trees.tree import EMPTY, Kind, entry_at, list_dir, walk
from coordinator.operations import objects
from coordinator.operations.cursors import place_after, rest_of
from coordinator.operations.suggestions import nearest
from podium.agent_record import read_agent
from podium.errors import NotAFile, UnknownFile
from podium.turn.upload import clean_path, shown_path

if TYPE_CHECKING:
    from typing import BinaryIO

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.history.path_histories import Record
    from chronicle.workspace.port import TreeRef
    from chronicle.workspace.trees.tree import Entry
    from podium.address import Address
    from podium.agent_record import AgentRecord

__all__ = ["FileContent", "Files", "file_history", "files_at", "find_file", "version_object"]

_LISTED_PATHS: Final = 1_000
"""Limit of paths that are compared with a missing one for a suggestion."""
_TYPES: Final = {
    Kind.FILE: "file",
    Kind.DIR: "directory",
    Kind.SYMLINK: "symlink",
}


@dataclass(frozen=True, slots=True)
class Files:
    """The files of an agent at a moment."""

    agent: AgentRecord
    blobs: BlobReader
    tree: TreeRef

    def history(self, path: str) -> list[Record]:
        """Return a path's versions, oldest first.

        Raises:
            UnknownFile: the path never existed.
        """
        records = self._view().records(os.fsencode(path))
        if not records:
            raise UnknownFile(f"{self.agent.address} never had a file {path!r}; {self._instead(path)}")
        return records

    def version(self, path: str, iteration: int) -> Record:
        """Return one version of a path.

        Raises:
            NotFound: the path has no version of that number.
        """
        view = self._view()
        record = view.find(os.fsencode(path), iteration)
        if record is None:
            self.history(path)
            raise view.missing(os.fsencode(path), iteration)
        return record

    def entry(self, path: str) -> Entry | None:
        """Return the entry at a path of the tree, the root's at ``""``; ``None`` if there is none."""
        return entry_at(self.blobs, self.tree.tree_id, os.fsencode(path))

    def missing(self, path: str) -> UnknownFile:
        """Return the error for a path that does not exist."""
        gone = self._view().last(os.fsencode(path))
        there = "it was deleted, and podium history lists its versions" if gone else self._instead(path)
        return UnknownFile(f"{self.agent.address} has no file {path!r} after turn {self.agent.turn}; {there}")

    def _view(self) -> HistoryView:
        return HistoryView(self.blobs, read_root(self.blobs, self.tree.oplog_id))

    def _instead(self, path: str) -> str:
        entries = islice(walk(self.blobs, self.tree.tree_id), _LISTED_PATHS)
        found = nearest(path, [os.fsdecode(name) for name, entry in entries if entry.kind is not Kind.DIR])
        return found or "it has no files now"


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file of an agent at a moment, and its bytes."""

    agent: str
    turn: int
    """Of the moment, not of the file's last change."""
    path: str
    content: Content
    _blobs: BlobReader

    @property
    def size(self) -> int:
        """Bytes."""
        return self.content.size

    @property
    def hash(self) -> str:
        """The content's id: equal content has equal ids."""
        return self.content.id

    def open(self) -> BinaryIO:
        """Open the content for reading, seekable; reads fetch blobs, and may block."""
        return open_content(self._blobs, self.content)


def files_at(store: JournalStore, blobs: BlobReader, address: Address, turn: int | None) -> Files:
    """Return an agent's files at the end of a turn, the last one if ``None``.

    Raises:
        UnknownAgent: there is no such agent, or it never started.
        UnknownMoment: it has not committed that turn.
        NotFound: it had no workspace then.
    """
    agent = read_agent(store, blobs, address, turn)
    if agent.tree is None:
        raise NotFound(f"{agent.address} had no workspace at turn {agent.turn}")
    return Files(agent, blobs, agent.tree)


def find_file(
    store: JournalStore,
    blobs: BlobReader,
    address: Address,
    path: str,
    turn: int | None = None,
    iteration: int | None = None,
) -> FileContent | objects.Directory | objects.Symlink:
    """Return what is at a path: a file, a directory's listing or a symlink, none of them followed.

    Args:
        path: ``""`` for the root.
        turn: the last one if ``None``.
        iteration: a version of the path, of whatever turn up to that one.

    Raises:
        UnknownAgent, UnknownMoment: as `files_at`.
        UnknownFile: nothing is there.
        NotAFile: something without content is there.
        InvalidInput: the path cannot be one of a workspace.
    """
    path = clean_path(path, root=True)
    agent = read_agent(store, blobs, address, turn)
    if agent.tree is None:
        if path:
            raise UnknownFile(f"{address} had no workspace at turn {agent.turn}")
        return _listing(agent, blobs, path)
    files = Files(agent, blobs, agent.tree)
    if iteration is not None:
        record = files.version(path, iteration)
        if record.deleted:
            raise UnknownFile(f"iteration {iteration} of {path} is its deletion; its history lists the versions before")
        return _found(files, path, record.kind, record.content, record.target)
    entry = files.entry(path)
    if entry is None:
        raise files.missing(path)
    return _found(files, path, entry.kind, entry.content, entry.target)


def file_history(
    store: JournalStore,
    blobs: BlobReader,
    address: Address,
    path: str,
    turn: int | None = None,
    *,
    limit: int = 100,
    cursor: str | None = None,
) -> objects.FileHistory:
    """Return a page of a path's versions that were committed up to a turn, oldest first.

    Raises:
        UnknownAgent: there is no such agent, or it never started.
        UnknownMoment: it has not committed that turn.
        UnknownFile: the path never existed.
        InvalidCursor: it is of another list.
    """
    path = clean_path(path)
    of = [str(address), path, None if turn is None else str(turn)]
    after = place_after(cursor, "history", of, 0)
    try:
        records = files_at(store, blobs, address, turn).history(path)
    except NotFound as error:
        raise UnknownFile(str(error)) from error
    found = [record for record in records if record.number > after]
    return objects.FileHistory(
        agent=address.name,
        path=shown_path(path),
        items=[version_object(record) for record in found[:limit]],
        **rest_of(found, limit, "history", of, lambda record: record.number),
    )


def version_object(record: Record) -> objects.FileVersion:
    """Return a version of a path as the JSON object that ``.chronicle/query`` has for it."""
    return objects.FileVersion(**cast("dict[str, Any]", iteration_of(record).as_json()))


def _found(
    files: Files, path: str, kind: Kind, content: Content | None, target: bytes | None
) -> FileContent | objects.Directory | objects.Symlink:
    agent = files.agent
    if content is not None:
        return FileContent(agent.address.name, agent.turn, path, content, files.blobs)
    if kind is Kind.DIR:
        return _listing(agent, files.blobs, path)
    if target:
        shown = target.decode(errors="backslashreplace")
        return objects.Symlink(
            agent=agent.address.name,
            turn=agent.turn,
            path=shown_path(path),
            target=shown,
        )
    raise NotAFile(f"{path} is a {kind.value}; only files have content")


def _listing(agent: AgentRecord, blobs: BlobReader, path: str) -> objects.Directory:
    tree_id = agent.tree.tree_id if agent.tree is not None else EMPTY
    directory = entry_at(blobs, tree_id, os.fsencode(path))
    assert directory is not None
    assert directory.subtree is not None
    stored = dict(list_dir(blobs, directory.subtree))
    entries: list[objects.DirectoryEntry] = []
    for name, status in CommittedFiles(blobs, agent.tree).list(path):
        content = stored[os.fsencode(name)].content
        entry = objects.DirectoryEntry(
            name=shown_path(name),
            type=_TYPES.get(status.kind, "other"),
            size=status.size,
            mode=f"{status.mode:04o}",
            modified_at=status.mtime_ns // 1_000_000,
            hash=content.id if content is not None else None,
            target=shown_path(status.target) if status.target is not None else None,
        )
        entries.append(entry)
    return objects.Directory(
        agent=agent.address.name,
        turn=agent.turn,
        path=shown_path(path),
        entries=tuple(entries),
    )
