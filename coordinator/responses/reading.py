"""Sessions as contexts read them: events with the texts of the artifacts that they name, bundles, responses."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chronicle.ids import BlobId, SessionId
from coordinator.operations.errors import UnknownSessionArtifact
from coordinator.responses.context import BranchHead, SessionFacts
from coordinator.responses.records import KIND, given, read_record
from coordinator.responses.transcript import BranchEvent
from coordinator.sessions.artifacts import ARTIFACT, artifact_content, artifact_object, find_artifact
from coordinator.sessions.finding import find_session, is_of_client
from coordinator.sessions.reading import bundles_of, context_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import Json
    from chronicle.clock import Clock
    from chronicle.journal.objects import StoredObject
    from chronicle.journal.port import JournalStore
    from coordinator.responses.transcript import GivenResponse
    from coordinator.sessions.reading import ContextEvent

__all__ = ["SessionReader"]

_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True)
class SessionReader:
    """Reads sessions; a `coordinator.responses.context.BranchReader`."""

    store: JournalStore
    blobs: BlobReader
    clock: Clock

    def session(self, tenant: str, session_id: str) -> SessionFacts:
        """Return a session."""
        session = find_session(self.store, tenant, session_id)
        bundles = [bundle.content for bundle in bundles_of(self.store, self.blobs, session)]
        return SessionFacts(session.session_id, session.main_branch_id, bundles, is_erasable=not is_of_client(session))

    def events(
        self, tenant: str, session_id: str, branch_id: str, after: int
    ) -> tuple[BranchHead, Sequence[BranchEvent]]:
        """Return the head of a branch, and its events of public types up to there."""
        head, found = context_events(self.store, self.blobs, session_id, branch_id, tenant, after_seq=after)
        events = [
            BranchEvent(
                event.event_id, event.seq, event.branch_id, event.type, event.created_ms, *self._told(tenant, event)
            )
            for event in found
        ]
        return BranchHead(session_id, head.branch_id, head.seq, head.event_id), events

    def has_artifacts(self, tenant: str, artifact_ids: frozenset[str]) -> bool:
        """Whether all of some artifacts are still there."""
        if not artifact_ids:
            return True
        return self.store.objects_left(ARTIFACT, artifact_ids, self.clock.now_ms(), tenant) == artifact_ids

    def bundle(self, content: str) -> str:
        """Return the text of a bundle."""
        return self.blobs.get(BlobId(content)).decode()

    def responses(self, tenant: str, session_id: str, known: Mapping[str, GivenResponse]) -> dict[str, GivenResponse]:
        """Return the responses of a session by id, in the order of ids."""
        of_session = SessionId(session_id)
        ids = self.store.object_ids(KIND, of_session, tenant)
        missing = next((response_id for response_id in ids if response_id not in known), None)
        if missing is None:
            return {response_id: known[response_id] for response_id in ids}
        # From the first one that is missing: ids grow, so that it is the last one, usually.
        after = ids[ids.index(missing) - 1] if ids[0] != missing else ""
        found = self.store.objects(KIND, tenant, session_id=of_session, after=after)
        read = {each.object_id: known.get(each.object_id) or given(read_record(each, self.blobs)) for each in found}
        return {response_id: known[response_id] for response_id in ids if response_id <= after} | read

    def _told(self, tenant: str, event: ContextEvent) -> tuple[Json, str | None]:
        """Return the payload of an event, of an artifact its text or the image; and the artifact, if it is there."""
        if event.payload_ref is None:
            return event.payload, None
        try:
            artifact = find_artifact(self.store, tenant, event.payload_ref, self.clock.now_ms())
        except UnknownSessionArtifact:
            return f"(the artifact {event.payload_ref} was deleted)", None
        return self._text(artifact), artifact.object_id

    def _text(self, artifact: StoredObject) -> Json:
        kind = artifact_object(artifact, self.blobs, with_content=False)["content_media_type"]
        data = artifact_content(artifact, self.blobs)
        if kind in _IMAGES:
            return {
                "content": [
                    {"type": "input_image", "image_url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}
                ]
            }
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"(the artifact {artifact.object_id}, {kind}, {len(data)} bytes)"
