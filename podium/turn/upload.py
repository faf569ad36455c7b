"""Uploads: a client puts or deletes a file of a sleeping agent, as a turn of its own that runs no code of the agent.

Order of writes as for any turn: blobs, then one commit, under an epoch of its own. A crash before the commit leaves
blobs that no turn reaches, which gc collects.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chronicle.blobs.buffer import BlobBuffer
from chronicle.errors import BranchVersionConflict, InvalidInput, StaleEpoch
from chronicle.workspace.content.content import store_file
from chronicle.workspace.history.edit import Edited, check_path, put_file, remove_file
from podium.agent_record import find_session, read_agent, snapshot_body
from podium.errors import NotAFile, UnknownFile
from podium.history.branching import agent_awake, rolled_back_trees, sleeping_lease
from podium.turn.journal.commit import NextCommit, TurnResult, turn_commit
from podium.turn.journal.snapshot_policy import SnapshotPolicy

if TYPE_CHECKING:
    from typing import BinaryIO

    from chronicle.blobs.port import BlobStore
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from chronicle.workspace.content.content import Content
    from chronicle.workspace.port import TreeRef
    from podium.address import Address
    from podium.agent_record import AgentRecord
    from podium.events import FileChange

__all__ = ["FileChanged", "change_file", "clean_path", "shown_path", "store_content", "upload_path"]


@dataclass(frozen=True, slots=True)
class FileChanged:
    """A file that was put or deleted."""

    turn: int
    """The new turn; the last one if the file had that content already."""
    version: int
    """The branch's version at its end."""
    iteration: int
    """The version of the path."""


def store_content(blobs: BlobStore, file: BinaryIO) -> Content:
    """Put the content of a file, from its position on, into the blob store, durably; `change_file` refers to it.

    Memory is bounded. A content that no turn refers to is collected by gc.

    Raises:
        Unavailable: the blob store could not be reached.
    """
    buffer = BlobBuffer(blobs)
    content = store_file(buffer, file)
    buffer.flush()
    return content


def change_file(
    store: JournalStore,
    blobs: BlobStore,
    address: Address,
    path: str,
    content: Content | None,
    ids: IdSource,
    now_ms: int,
) -> FileChanged:
    """Put a file of a sleeping agent, or delete it, as a turn of its own. Durable on return.

    Messages admitted meanwhile stay in the inbox.

    Args:
        path: relative to the workspace's root.
        content: of `store_content`; ``None`` deletes the file.

    Raises:
        UnknownAgent: there is no such agent, or it never started.
        UnknownFile: there is no file to delete.
        NotAFile: something else than a file is at the path, or above it.
        InvalidInput: no file can have that path.
        AgentAwake: it is awake, or was woken meanwhile; nothing was written.
    """
    session = find_session(store, address)
    read_agent(store, blobs, address)  # an agent that never started is refused before an epoch is used
    with sleeping_lease(store, session, now_ms) as lease:
        record = read_agent(store, blobs, address)
        buffer = BlobBuffer(blobs)
        edited = _edited(buffer, record, path, content, now_ms, rolled_back_trees(store, blobs, record))
        if edited.ref == record.tree:
            return FileChanged(record.turn, record.version_seq, edited.iteration)
        change: FileChange = {
            "path": shown_path(path),
            "op": "write" if content is not None else "delete",
            "size": edited.size,
            "content_id": content.id if content is not None else None,
            "iteration": edited.iteration,
        }
        result = _result(record, edited, change)
        next_commit = NextCommit(session, record.head, lease.epoch, ids, now_ms)
        commit = turn_commit(next_commit, result)
        for blob in next_commit.large.values():
            buffer.add(blob)
        buffer.flush()
        try:
            head = store.commit(commit)
        except (StaleEpoch, BranchVersionConflict) as error:
            raise agent_awake(str(address), "was woken at this moment") from error
        return FileChanged(head.turn, head.seq, edited.iteration)


def shown_path(path: str) -> str:
    """Return a path as text that any JSON can hold: bytes that are not UTF-8 are escaped with a backslash."""
    return os.fsencode(path).decode(errors="backslashreplace")


def upload_path(path: str) -> str:
    """Normalize the path of a file to put or delete.

    Raises:
        InvalidInput: no file can have that path.
    """
    path = clean_path(path)
    check_path(os.fsencode(path))
    return path


def clean_path(path: str, *, root: bool = False) -> str:
    """Normalize a path to the form that workspaces use: relative, without ``.`` and double slashes.

    Args:
        path: as a client gives it.
        root: whether it may name the root, which is ``""``.

    Raises:
        InvalidInput: it is empty, contains ``..`` or a zero byte, or is no text.
    """
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if not (parts or root) or ".." in parts or "\0" in path or not _is_text(path):
        raise InvalidInput(f"{path!r} does not name a file in a workspace; give its path from the workspace's root")
    return "/".join(parts)


def _is_text(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


def _edited(
    buffer: BlobBuffer,
    record: AgentRecord,
    path: str,
    content: Content | None,
    now_ms: int,
    given_up: list[TreeRef],
) -> Edited:
    name, turn = os.fsencode(path), record.turn + 1
    try:
        if content is None:
            return remove_file(buffer, record.tree, name, turn, now_ms, given_up)
        return put_file(buffer, record.tree, name, content, turn, now_ms, given_up)
    except FileNotFoundError as error:
        raise UnknownFile(f"{record.address} has no file {path!r}") from error
    except OSError as error:
        raise NotAFile(f"{path!r} of {record.address} cannot be changed: {error.strerror}") from error


def _result(record: AgentRecord, edited: Edited, change: FileChange) -> TurnResult:
    snapshots = SnapshotPolicy()
    snapshots.opened(record)
    turn = record.turn + 1
    body = None
    if snapshots.due:
        body = snapshot_body(turn, record.entity_type, record.schema_version, record.state, edited.ref, record.config)
    return TurnResult(
        turn=turn,
        cause="upload",
        message=None,
        steered=(),
        drafts=(),
        entity_type=record.entity_type,
        schema_version=record.schema_version,
        patch=(),
        tree=edited.ref,
        outbox=(),
        snapshot=body,
        files=(change,),
    )
