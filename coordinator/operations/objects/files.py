"""Files of agents' workspaces, and artifacts."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from coordinator.operations.objects.documented import documented

__all__ = [
    "ArtifactObject",
    "ArtifactPage",
    "DirectoryEntry",
    "DirectoryObject",
    "FileChanged",
    "FileHistory",
    "FileVersion",
    "FoundArtifact",
    "SymlinkObject",
]


@documented
class DirectoryEntry(TypedDict):
    """One name in a directory."""

    name: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    mode: str
    """Permission bits, octal."""
    modified_at: int
    hash: str | None
    """The content's id; equal content has equal ids."""
    target: NotRequired[str]
    """Of a symlink."""


@documented
class DirectoryObject(TypedDict):
    """A directory of an agent's workspace, at the end of a turn."""

    agent: str
    turn: int
    path: str
    """From the workspace's root, which is the empty string."""
    type: Literal["directory"]
    entries: list[DirectoryEntry]


@documented
class SymlinkObject(TypedDict):
    """A symlink: it is not followed."""

    agent: str
    turn: int
    path: str
    type: Literal["symlink"]
    target: str


@documented
class FileVersion(TypedDict):
    """One version of a path."""

    iteration: int
    timestamp: int
    size: int
    hash: str
    """The content's id; empty for a deletion."""
    op: str
    turn: int
    mode: NotRequired[str]
    source: NotRequired[str]
    """For rename and link, the path it came from."""


@documented
class FileHistory(TypedDict):
    """The versions of a path, oldest first."""

    agent: str
    path: str
    items: list[FileVersion]
    next_cursor: str | None
    """The cursor of the next page; null at the end."""
    remaining: int
    """Items after this page."""


@documented
class FileChanged(TypedDict):
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


@documented
class ArtifactObject(TypedDict):
    """An artifact."""

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


@documented
class FoundArtifact(TypedDict):
    """An artifact that was found by its id."""

    agent: str
    """An agent that has it: the one that published it, unless that was deleted."""
    artifact: ArtifactObject


@documented
class ArtifactPage(TypedDict):
    """Artifacts, oldest first."""

    items: list[ArtifactObject]
    next_cursor: str | None
    """The cursor of the next page; null at the end."""
    remaining: int
    """Items after this page."""
