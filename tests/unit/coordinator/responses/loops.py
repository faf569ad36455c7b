"""The loop of a client on a session, without HTTP and without a model: events and responses as they are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from coordinator.responses.items import user_item
from coordinator.responses.records import ResponseRecord, store_record
from coordinator.sessions.branches import fork_branch
from coordinator.sessions.bundles import BundleItem, CompiledBundle, create_bundle, prepare_bundle
from coordinator.sessions.events import NewEvent, append_event
from coordinator.sessions.sessions import create_session
from coordinator.sessions.write_request import WriteRequest

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import Json
    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from coordinator.responses.objects import ResponseObject

__all__ = ["Loop"]


@dataclass
class Loop:
    """A client of one session."""

    store: JournalStore
    blobs: BlobStore
    ids: IdSource
    clock: Clock
    tenant: str = "default"
    session_id: str = ""
    branch_id: str = ""
    version: int = 0
    head: str | None = None
    bundles: list[str] = field(default_factory=list)

    def open(self, *bundles: str) -> None:
        """Open a session that pins bundles of one text each."""
        for text in bundles:
            items, now_ms = [BundleItem(text=text)], self.clock.now_ms()
            new = prepare_bundle(self.store, self.blobs, self.tenant, items, {}, None, now_ms)
            assert isinstance(new, CompiledBundle)
            made = create_bundle(self.store, self.blobs, self.tenant, new, self.ids, now_ms)
            self.bundles.append(made["id"])
        session = create_session(
            self.store, self.blobs, self.tenant, self.bundles, {}, None, self.ids, self.clock.now_ms()
        )
        self.session_id, self.branch_id = session["id"], session["default_branch_id"]

    def append(self, event_type: str, payload: Json = None, payload_ref: str | None = None) -> str:
        """Append an event, and return its id."""
        new = NewEvent(self.version, self.head, event_type, payload, payload_ref)
        event = append_event(self.store, self.blobs, self._request(), self.session_id, self.branch_id, new)
        self.version, self.head = event["sequence"], event["id"]
        return event["id"]

    def respond(self, text: str, answer: str) -> str:
        """Store a response on the head, as if a model had answered, and return its id."""
        now_ms = self.clock.now_ms()
        response_id = self.ids.other("rsp_", now_ms)
        content = [{"type": "output_text", "text": answer, "annotations": [], "logprobs": []}]
        response: dict[str, Any] = {
            "id": response_id,
            "session_id": self.session_id,
            "branch_id": self.branch_id,
            "head_event_id": self.head,
            "output": [{"type": "message", "role": "assistant", "content": content}],
        }
        record = ResponseRecord(cast("ResponseObject", response), [user_item(text)], now_ms, now_ms)
        store_record(self.store, self.blobs, self.tenant, record, None)
        return response_id

    def turn(self, text: str, answer: str) -> None:
        """Append a question, respond, append an answer."""
        self.append("user_message")
        self.respond(text, answer)
        self.append("assistant_message")

    def _request(self) -> WriteRequest:
        return WriteRequest(self.tenant, None, self.ids, self.clock.now_ms())

    def fork(self) -> Loop:
        """Return the client of a fork at the head."""
        branch = fork_branch(self.store, self.blobs, self._request(), self.session_id, self.branch_id, None)
        return Loop(
            self.store,
            self.blobs,
            self.ids,
            self.clock,
            self.tenant,
            self.session_id,
            branch["id"],
            self.version,
            self.head,
        )
