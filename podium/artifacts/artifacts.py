"""Artifacts: named pieces of content that agents publish, such as a report, an image or a data set.

An artifact is an event, ``artifact.added``, in the commit of its turn, so it exists exactly if the turn does, and the
chain of events covers it. Its id is the event's, with ``art_`` in place of ``evt_``. Its content is in the blob store
in the form of workspace files (:mod:`chronicle.workspace.content.content`): small content whole, large in chunks,
deduplicated. It is immutable, and removed with its event: erased, folded or deleted.

This module finds and reads artifacts; :mod:`podium.turn.scope.artifacts` adds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NewType, cast

from chronicle.blobs.ident import to_raw
from chronicle.blobs.port import get_many
from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.ids import BlobId, EventId
from chronicle.journal.payloads import payload_of
from chronicle.workspace.content import content as contents
from chronicle.workspace.content.content import Content
from podium.agent_record import find_session, retry_if_folded, turn_end_seq
from podium.artifacts.names import check_media_type, check_name
from podium.errors import UnknownArtifact
from podium.events import ARTIFACT_ADDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import BinaryIO

    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import BranchId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.ports.events import EventRecords
    from chronicle.journal.records import Event
    from podium.address import Address
    from podium.turn.stream import Frame

__all__ = [
    "Artifact",
    "ArtifactId",
    "artifact_frame",
    "artifact_of",
    "artifact_payload",
    "content_in",
    "contents_of",
    "event_id_of",
    "find_artifact",
    "list_artifacts",
    "open_artifact",
    "read_artifact",
]

ArtifactId = NewType("ArtifactId", str)
"""``art_…``: one artifact."""

_PREFIX: Final = "art_"
_EVENT_PREFIX: Final = "evt_"
_ID: Final = re.compile(r"art_[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class Artifact:
    """One artifact, as its event has it."""

    artifact_id: ArtifactId
    name: str
    """Usable as a file name; not unique."""
    media_type: str
    content: Content
    """A reference to its bytes, for `open_artifact`. ``content.id`` is equal for equal bytes."""
    branch_id: BranchId
    """The branch that owns its event; forks of that branch inherit it."""
    seq: int
    """Of its event."""
    turn: int
    """The turn that added it."""
    added_ms: int
    """Epoch milliseconds."""
    message_id: str | None
    """The message that was being handled; ``None`` in other hooks."""

    @property
    def size_bytes(self) -> int:
        """Its size."""
        return self.content.size


def find_artifact(store: EventRecords, blobs: BlobReader, artifact_id: str) -> Artifact:
    """Return an artifact by its id; the cost does not depend on the number of artifacts.

    Args:
        blobs: where large payloads are.

    Raises:
        UnknownArtifact: there is none of that id, or it was removed.
        Corrupt: its event is damaged.
        Unavailable: a store could not be reached.
    """
    if not _ID.fullmatch(artifact_id):
        raise UnknownArtifact(f"{artifact_id!r} is not an artifact's id: art_ and 26 letters and digits")
    event = store.find_event(event_id_of(artifact_id))
    if event is None or event.type != ARTIFACT_ADDED:
        raise UnknownArtifact(f"no artifact {artifact_id} in this home")
    if event.erased:
        raise UnknownArtifact(f"artifact {artifact_id} was erased")
    return artifact_of(event, payload_of(event, blobs))


def list_artifacts(
    store: JournalStore, blobs: BlobReader, address: Address, turn: int | None = None
) -> Sequence[Artifact]:
    """Return an agent's artifacts, oldest first, inherited ones included; reads its whole history.

    A rewind removes none. Artifacts that were erased, or whose events were dropped, are not listed.

    Args:
        turn: the last turn to list; the head if ``None``.

    Raises:
        UnknownAgent: there is no such agent.
        UnknownMoment: it has not committed that turn, or its history up to there was dropped.
        Corrupt: an event is damaged.
        Unavailable: a store could not be reached.
    """
    branch_id = find_session(store, address).main_branch_id
    return retry_if_folded(store, branch_id, lambda: _listed(store, blobs, address, branch_id, turn))


def _listed(
    store: JournalStore, blobs: BlobReader, address: Address, branch_id: BranchId, turn: int | None
) -> list[Artifact]:
    head = store.head(branch_id)
    end = head.seq if turn is None else turn_end_seq(store, address, head, turn)
    return [
        artifact_of(event, payload_of(event, blobs))
        for event in store.events(branch_id, to_seq=end, types=(ARTIFACT_ADDED,))
        if not event.erased
    ]


def open_artifact(blobs: BlobReader, artifact: Artifact) -> BinaryIO:
    """Return an artifact's content as a seekable file, read-only.

    Blobs are fetched on demand and verified against their ids. A read raises `Corrupt` if one is missing or damaged,
    and `Unavailable` if the store could not be reached.
    """
    return contents.open(_Committed(blobs, artifact), artifact.content)


def read_artifact(blobs: BlobReader, artifact: Artifact) -> bytes:
    """Return all of an artifact's content; raises as reads from `open_artifact` do."""
    return contents.read(_Committed(blobs, artifact), artifact.content)


def event_id_of(artifact_id: str) -> EventId:
    """Return the id of the event that adds an artifact; an event's id is returned unchanged."""
    return EventId(artifact_id.replace(_PREFIX, _EVENT_PREFIX, 1) if artifact_id.startswith(_PREFIX) else artifact_id)


def artifact_payload(event_id: EventId, name: str, media_type: str, content: Content) -> JsonObject:
    """Return the payload of the event that adds an artifact, `podium.events.ArtifactAdded`; see `check_name`."""
    return {
        "artifact_id": _PREFIX + event_id.removeprefix(_EVENT_PREFIX),
        "name": name,
        "media_type": media_type,
        "size": content.size,
        "content_id": content.id,
        "chunked": content.chunked,
    }


def content_in(payload: Mapping[str, Json]) -> Content:
    """Return the content that a payload of `artifact_payload` names."""
    return Content(BlobId(cast("str", payload["content_id"])), cast("int", payload["size"]), bool(payload["chunked"]))


def artifact_frame(payload: Mapping[str, Json]) -> Frame:
    """Return the frame of an artifact."""
    return {"type": "artifact", **{key: payload[key] for key in ("artifact_id", "name", "media_type", "size")}}


def artifact_of(event: Event, payload: Json) -> Artifact:
    """Return the artifact that an event of type ``artifact.added`` adds.

    Raises:
        Corrupt: the payload is not that of such an event.
    """
    match payload:
        case {
            "artifact_id": str(artifact_id),
            "name": str(name),
            "media_type": str(media_type),
            "size": int(size),
            "content_id": str(content_id),
            "chunked": bool(chunked),
        }:
            content = Content(BlobId(content_id), size, chunked)
        case _:
            raise Corrupt(f"event {event.event_id} (seq {event.seq}) has no content of an artifact")
    try:
        check_name(name)
        check_media_type(media_type)
        to_raw(content.id)
    except InvalidInput as error:
        raise Corrupt(f"event {event.event_id} (seq {event.seq}): {error}") from error
    if artifact_id != _PREFIX + event.event_id.removeprefix(_EVENT_PREFIX):
        raise Corrupt(f"event {event.event_id} (seq {event.seq}) has the id of another artifact")
    return Artifact(
        artifact_id=ArtifactId(artifact_id),
        name=name,
        media_type=media_type,
        content=content,
        branch_id=event.branch_id,
        seq=event.seq,
        turn=event.turn,
        added_ms=event.ts,
        message_id=event.correlation_id,
    )


def contents_of(event: Event, payload: Json) -> list[Content]:
    """Return the contents that an event reaches besides its trees: that of its artifact, if it adds one.

    Raises:
        Corrupt: as `artifact_of`.
    """
    return [artifact_of(event, payload).content] if event.type == ARTIFACT_ADDED else []


class _Committed:
    """A reader of an artifact's blobs, for which a missing blob is damage."""

    def __init__(self, blobs: BlobReader, artifact: Artifact) -> None:
        self._blobs = blobs
        self._artifact = artifact

    def get(self, blob_id: BlobId) -> bytes:
        try:
            return self._blobs.get(blob_id)
        except NotFound as error:
            raise self._damaged(error) from error

    def get_many(self, blob_ids: Sequence[BlobId]) -> Mapping[BlobId, bytes]:
        try:
            return get_many(self._blobs, blob_ids)
        except NotFound as error:
            raise self._damaged(error) from error

    def _damaged(self, error: NotFound) -> Corrupt:
        return Corrupt(f"a part of artifact {self._artifact.artifact_id} ({self._artifact.name}) is missing: {error}")
