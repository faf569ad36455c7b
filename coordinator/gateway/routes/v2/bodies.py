"""The bodies of requests to ``/v2``. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from coordinator.gateway.bodies import WholeNumber
from coordinator.sessions.objects import EVENT_TYPES, RetentionClass

__all__ = ["AppendBody", "ArtifactBody", "BundleBody", "BundleItemBody", "EventBody", "ForkBranchBody", "SessionBody"]

_Id = Annotated[str, Field(min_length=1, max_length=64)]
_Metadata = Annotated[dict[str, Any], Field(max_length=64)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class SessionBody(_Body):
    """A session to open."""

    base_bundle_ids: Annotated[list[_Id], Field(max_length=64)] = []
    """The bundles that it pins, in order."""
    metadata: _Metadata = {}
    """Any JSON object of up to 64 keys."""


class EventBody(_Body):
    """An event to append: with a payload, with the artifact that is its payload, or with neither."""

    event_type: Annotated[str, Field(max_length=64, json_schema_extra={"enum": list(EVENT_TYPES)})]
    payload: Any = None
    """Any JSON value; null for none."""
    payload_ref: _Id | None = None
    """The id of an artifact."""


class AppendBody(_Body):
    """An event, and where the client expects the branch to be."""

    expected_version: WholeNumber
    """The sequence of its last event; 0 for an empty branch."""
    expected_head_event_id: _Id | None
    """Its last event; null for an empty branch."""
    event: EventBody


class ForkBranchBody(_Body):
    """A branch to make."""

    fork_from_branch_id: _Id
    fork_from_event_id: _Id | None = None
    """The last event that the new branch has of the other one; its head by default."""


class ArtifactBody(_Body):
    """An artifact to store."""

    content: Any
    """A text, another JSON value, or bytes in Base64."""
    content_encoding: Literal["text", "json", "base64"] | None = None
    """By default `text` for a text and `json` for another value."""
    content_media_type: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    artifact_type: Annotated[str, Field(min_length=1, max_length=64)] = "content"
    """The kind of its content, in the client's words."""
    retention_class: RetentionClass = "standard"
    """`standard`: kept until it is deleted; `temporary`: for seven days; `session`: deleted with `session_id`."""
    session_id: _Id | None = None
    """The session of the class `session`."""
    metadata: _Metadata = {}


class BundleItemBody(_Body):
    """An item of a bundle: a text, or the artifact that has it."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    text: str | None = None
    artifact_id: _Id | None = None
    title: Annotated[str, Field(max_length=1024)] | None = None


class BundleBody(_Body):
    """A bundle to make."""

    items: Annotated[list[BundleItemBody], Field(min_length=1, max_length=1000)]
    """In this order."""
    metadata: _Metadata = {}
