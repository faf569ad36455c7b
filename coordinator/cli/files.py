"""The committed files of an agent, read from the blob store: no mount, no service."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import InvalidInput, NotFound
from coordinator.cli.lookup import nearest, split_moment
from coordinator.cli.stores import opened_blobs, read_journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.blobs.port import BlobReader
    from chronicle.workspace.history.path_histories import Record
    from chronicle.workspace.history.view import HistoryView
    from chronicle.workspace.port import TreeRef
    from chronicle.workspace.trees.tree import Entry
    from podium.agent_record import AgentRecord

__all__ = ["Files", "clean_path", "opened_files", "version_object"]

_LISTED_PATHS: Final = 1_000
"""Limit of paths that are compared with a missing one for a suggestion."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of an agent at a moment."""

    agent: AgentRecord
    blobs: BlobReader
    tree: TreeRef

    def history(self, path: str) -> list[Record]:
        """Return a path's versions, oldest first.

        Raises:
            NotFound: the path never existed.
        """
        records = self._view().records(os.fsencode(path))
        if not records:
            raise NotFound(f"{self.agent.address} never had a file {path!r}; {self._instead(path)}")
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
        """Return the entry at a path of the tree; ``None`` if there is none."""
        from chronicle.workspace.trees.tree import entry_at  # noqa: PLC0415

        return entry_at(self.blobs, self.tree.tree_id, os.fsencode(path))

    def missing(self, path: str) -> NotFound:
        """Return the error for a path that does not exist."""
        gone = self._view().last(os.fsencode(path))
        there = "it was deleted, and podium history lists its versions" if gone else self._instead(path)
        return NotFound(f"{self.agent.address} has no file {path!r} after turn {self.agent.turn}; {there}")

    def _view(self) -> HistoryView:
        from chronicle.workspace.history.oplog import read_root  # noqa: PLC0415
        from chronicle.workspace.history.view import HistoryView  # noqa: PLC0415

        root = read_root(self.blobs, self.tree.oplog_id)
        return HistoryView(self.blobs, root.histories, root.moved_seq, {}, {}, root.gaps)

    def _instead(self, path: str) -> str:
        from chronicle.workspace.trees.tree import Kind, walk  # noqa: PLC0415

        entries = islice(walk(self.blobs, self.tree.tree_id), _LISTED_PATHS)
        found = nearest(path, [os.fsdecode(name) for name, entry in entries if entry.kind is not Kind.DIR])
        return found or "it has no files now"


@contextmanager
def opened_files(home: Path, moment: str) -> Iterator[Files]:
    """Open the files of ``AGENT[@TURN]`` for reading."""
    from podium.address import Address  # noqa: PLC0415
    from podium.agent_record import read_agent  # noqa: PLC0415

    with opened_blobs(home) as blobs:
        with read_journal(home) as store:
            session, turn = split_moment(store, moment)
            agent = read_agent(store, blobs, Address.of(session), turn)
        if agent.tree is None:
            raise NotFound(f"{agent.address} had no workspace at turn {agent.turn}")
        yield Files(agent, blobs, agent.tree)


def clean_path(path: str) -> str:
    """Normalize a path to the form that workspaces use: relative, without ``.`` and double slashes.

    Raises:
        InvalidInput: it is empty or contains ``..``.
    """
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if not parts or ".." in parts:
        raise InvalidInput(f"{path!r} does not name a file in a workspace; give its path from the workspace's root")
    return "/".join(parts)


def version_object(record: Record) -> dict[str, Any]:
    """Return a version of a path as the JSON object that ``.chronicle/query`` has for it."""
    from chronicle.workspace.layer.history_reader import iteration_of  # noqa: PLC0415

    return iteration_of(record).as_json()
