"""Files of agents' workspaces, and artifacts."""

from __future__ import annotations

from coordinator.client.results.result import Result

__all__ = [
    "Artifact",
    "DirectoryEntry",
    "FileChanged",
    "FileVersion",
    "FoundArtifact",
]


class DirectoryEntry(Result):
    """One name in a directory of a workspace."""

    name: str
    type: str
    """``file``, ``directory``, ``symlink`` or ``other``."""
    size: int
    mode: str
    """Permission bits, octal."""
    modified_at: int
    hash: str | None
    """The content's id; equal content has equal ids."""
    target: str | None = None
    """Of a symlink."""


class FileVersion(Result):
    """One version of a path."""

    iteration: int
    """From 1; never used again for another version."""
    timestamp: int
    size: int
    hash: str
    """The content's id; empty for a deletion."""
    op: str
    """The operation that made it, such as ``write`` or ``rename``."""
    turn: int
    mode: str | None = None
    source: str | None = None
    """For ``rename`` and ``link``, the path it came from."""


class FileChanged(Result):
    """A file that was uploaded or deleted, as a turn of its own."""

    agent: str
    turn: int
    """The new turn; the last one if nothing had to change."""
    version: int
    path: str
    size: int
    hash: str | None
    """The content's id; ``None`` after a deletion."""
    iteration: int
    """The new version of the path."""


class Artifact(Result):
    """A published artifact."""

    artifact_id: str
    name: str
    media_type: str
    size: int
    hash: str
    """The content's id; equal content has equal ids."""
    branch: str
    seq: int
    """Of its event."""
    turn: int
    timestamp: int
    message_id: str | None
    """The message that was being handled; ``None`` in other hooks."""


class FoundArtifact(Result):
    """An artifact that was found by its id."""

    agent: str
    """An agent that has it: the one that published it, unless that was deleted."""
    artifact: Artifact
