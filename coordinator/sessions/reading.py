"""Sources of a context: the bundles that a session pins, and the events of a branch up to its head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from chronicle.errors import NotFound
from chronicle.journal.objects import object_body
from chronicle.journal.payloads import payload_of
from chronicle.journal.records import DEFAULT_NAMESPACE
from coordinator.sessions.bundles import find_bundle
from coordinator.sessions.events import payload_and_ref
from coordinator.sessions.finding import SESSION, find_branch, find_session

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader
    from chronicle.canonical import Json
    from chronicle.ids import BlobId, BranchId, EventId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Head, Session

__all__ = ["ContextEvent", "PinnedBundle", "bundles_of", "context_events"]


@dataclass(frozen=True, slots=True)
class ContextEvent:
    """An event as a context sees it."""

    event_id: EventId
    branch_id: BranchId
    seq: int
    type: str
    payload: Json
    """``None`` without a payload, and for one that was erased."""
    payload_ref: str | None
    """The artifact that is its payload."""
    created_ms: int

    @property
    def is_empty(self) -> bool:
        """Whether it has neither a payload nor names one."""
        return self.payload is None and self.payload_ref is None


@dataclass(frozen=True, slots=True)
class PinnedBundle:
    """A bundle of a session."""

    bundle_id: str
    content: BlobId
    """The blob of its compiled bytes, named by their BLAKE3: the same bytes have the same name."""


def context_events(
    store: JournalStore,
    blobs: BlobReader,
    session_id: str,
    branch_id: str,
    namespace: str = DEFAULT_NAMESPACE,
    *,
    after_seq: int = 0,
) -> tuple[Head, list[ContextEvent]]:
    """Return the head of a branch, and its events of public types up to there, inherited ones included.

    Args:
        namespace: the tenant.
        after_seq: only events after this one, for a reader that has those before.

    Raises:
        UnknownSession, UnknownBranch: the tenant has none.
    """
    session = find_session(store, namespace, session_id)
    head = find_branch(store, session, branch_id).head
    found = []
    for event in store.events(head.branch_id, after_seq, head.seq):
        if "." in event.type:
            continue
        payload, ref = payload_and_ref(session, None if event.erased else payload_of(event, blobs))
        found.append(ContextEvent(event.event_id, event.branch_id, event.seq, event.type, payload, ref, event.ts))
    return head, found


def bundles_of(store: JournalStore, blobs: BlobReader, session: Session) -> list[PinnedBundle]:
    """Return the bundles that a session pins, in order; none for an agent's session."""
    try:
        pins = object_body(store.object(SESSION, session.session_id, session.namespace), blobs)["base_bundle_ids"]
    except NotFound:
        return []
    pinned = []
    for bundle_id in cast("list[str]", pins):
        bundle = find_bundle(store, session.namespace, bundle_id)
        assert bundle.content is not None
        pinned.append(PinnedBundle(bundle_id, bundle.content))
    return pinned
