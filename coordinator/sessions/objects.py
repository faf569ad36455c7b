"""The JSON objects of sessions, as HTTP answers with them. Times are epoch milliseconds, sizes are bytes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

__all__ = [
    "EVENT_TYPES",
    "BranchObject",
    "BranchPage",
    "BranchParent",
    "BundleItemObject",
    "BundleObject",
    "BundlePage",
    "DeletedArtifact",
    "DeletedSession",
    "EventType",
    "RetentionClass",
    "SessionEventObject",
    "SessionEventPage",
    "SessionObject",
    "SessionPage",
    "StoredArtifactObject",
    "StoredArtifactPage",
]

EventType: TypeAlias = Literal[
    "user_message", "assistant_message", "tool_result", "retrieval_result", "checkpoint", "note"
]
"""A type of events that clients append."""
EVENT_TYPES = ("user_message", "assistant_message", "tool_result", "retrieval_result", "checkpoint", "note")
RetentionClass: TypeAlias = Literal["standard", "temporary", "session"]
"""How long an artifact is kept."""

_documented = with_config(ConfigDict(use_attribute_docstrings=True, defer_build=True))


@_documented
class SessionObject(TypedDict):
    """A session."""

    id: str
    object: Literal["session"]
    project_id: str
    """The tenant that it belongs to."""
    status: Literal["active"]
    default_branch_id: str
    """The branch that it has from the beginning."""
    agent: str | None
    """The agent whose session it is; it can be read only. Null for a session of a client."""
    base_bundle_ids: list[str]
    """The bundles that it pins, in order."""
    metadata: dict[str, Any]
    created_at: int


@_documented
class SessionPage(TypedDict):
    """Sessions of clients by id, and those of agents by address."""

    items: list[SessionObject]
    next_cursor: str | None


@_documented
class DeletedSession(TypedDict):
    """A session that was deleted."""

    id: str
    object: Literal["session"]
    status: Literal["tombstoned"]
    events: int
    """The number of events that were deleted with it."""


@_documented
class BranchParent(TypedDict):
    """The place that a branch continues."""

    branch_id: str
    version: int
    """The events up to this sequence are the parent's."""


@_documented
class BranchObject(TypedDict):
    """A branch, at its present position."""

    id: str
    object: Literal["branch"]
    session_id: str
    is_default: bool
    version: int
    """The sequence of its last event, its parent's counted; 0 without events."""
    head_event_id: str | None
    """Its last event."""
    parent: BranchParent | None
    created_at: int


@_documented
class BranchPage(TypedDict):
    """Branches, oldest first."""

    items: list[BranchObject]
    next_cursor: str | None


@_documented
class SessionEventObject(TypedDict):
    """An event of a branch."""

    id: str
    object: Literal["event"]
    session_id: str
    branch_id: str
    """The branch that it was appended to; a fork reads its parent's events, too."""
    sequence: int
    """From 1; the version of the branch after it."""
    event_type: str
    """One of the six public types; in the session of an agent also a type of the system's own, with a dot."""
    payload: Any
    """Null without a payload, or if it was erased."""
    payload_ref: str | None
    """The artifact that is its payload."""
    created_at: int
    hash: str
    """Covers the event and all events before it."""


@_documented
class SessionEventPage(TypedDict):
    """Events, oldest first."""

    items: list[SessionEventObject]
    next_cursor: str | None


@_documented
class StoredArtifactObject(TypedDict):
    """An artifact of a client. It never changes."""

    id: str
    object: Literal["artifact"]
    artifact_type: str
    content_media_type: str
    content_encoding: Literal["text", "json", "base64"]
    """How `content` holds the bytes: as text in UTF-8, as a JSON value, or as Base64."""
    content: Any
    """The content as it was sent; null in lists."""
    size: int
    hash: str
    """The BLAKE3 of the bytes."""
    retention_class: RetentionClass
    session_id: str | None
    """The session that it is deleted with; null unless the class is `session`."""
    metadata: dict[str, Any]
    created_at: int
    expires_at: int | None
    """When it is dropped; null unless the class is `temporary`."""


@_documented
class StoredArtifactPage(TypedDict):
    """Artifacts, oldest first, without their contents."""

    items: list[StoredArtifactObject]
    next_cursor: str | None


@_documented
class DeletedArtifact(TypedDict):
    """An artifact that was deleted."""

    id: str
    object: Literal["artifact"]
    deleted: bool


@_documented
class BundleItemObject(TypedDict):
    """An item of a bundle."""

    title: str | None
    artifact_id: str | None
    """The artifact whose text it took; the bundle has a copy."""
    size: int
    """The size of its text."""


@_documented
class BundleObject(TypedDict):
    """A bundle: texts in an order, compiled once. It never changes."""

    id: str
    object: Literal["bundle"]
    items: list[BundleItemObject]
    size: int
    """The size of the compiled bytes."""
    hash: str
    """The BLAKE3 of the compiled bytes: the same items have the same."""
    content: str | None
    """The compiled text; null in lists."""
    metadata: dict[str, Any]
    created_at: int


@_documented
class BundlePage(TypedDict):
    """Bundles, oldest first, without their contents."""

    items: list[BundleObject]
    next_cursor: str | None
