"""Files of agents' workspaces, and artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from coordinator.operations.objects.pages import Page
from coordinator.operations.objects.result import MAY_BE_ABSENT, Result, one_of

__all__ = [
    "Artifact",
    "Directory",
    "DirectoryEntry",
    "FileChanged",
    "FileHistory",
    "FileVersion",
    "FoundArtifact",
    "Symlink",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry(Result):
    """One name in a directory."""

    name: str
    type: str = field(metadata=one_of("file", "directory", "symlink", "other"))
    size: int
    mode: str
    """Permission bits, octal."""
    modified_at: int
    hash: str | None
    """The content's id; equal content has equal ids."""
    target: str | None = field(default=None, metadata=MAY_BE_ABSENT)
    """Of a symlink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory(Result):
    """A directory of an agent's workspace, at the end of a turn."""

    agent: str
    turn: int
    path: str
    """From the workspace's root, which is the empty string."""
    type: Literal["directory"] = "directory"
    entries: tuple[DirectoryEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symlink(Result):
    """A symlink: it is not followed."""

    agent: str
    turn: int
    path: str
    type: Literal["symlink"] = "symlink"
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVersion(Result):
    """One version of a path."""

    iteration: int
    """From 1; never used again for another version."""
    timestamp: int
    size: int
    hash: str
    """The content's id; empty for a deletion."""
    op: str
    """The operation that made it, such as `write` or `rename`."""
    turn: int
    mode: str | None = field(default=None, metadata=MAY_BE_ABSENT)
    source: str | None = field(default=None, metadata=MAY_BE_ABSENT)
    """For `rename` and `link`, the path it came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHistory(Page[FileVersion]):
    """The versions of a path, oldest first."""

    agent: str
    path: str
    items: Sequence[FileVersion]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanged(Result):
    """A file that was uploaded or deleted, as a turn of its own."""

    agent: str
    turn: int
    """The new turn; the last one if nothing had to change."""
    version: int
    path: str
    size: int
    hash: str | None
    """The content's id; null after a deletion."""
    iteration: int
    """The new version of the path."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """The message that was being handled; null in other hooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundArtifact(Result):
    """An artifact that was found by its id."""

    agent: str
    """An agent that has it: the one that published it, unless that was deleted."""
    artifact: Artifact
