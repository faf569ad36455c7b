"""Context that a model is sent: a session's bundles, then a branch up to its head, then the input.

Everything before the input is the same for a branch each time, and grows at its end only: what a provider has cached of
it serves the next response. What was read is kept in memory, so that a long session is read once.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from cachetools import LRUCache

from coordinator.operations.errors import EmptyContext, UnknownSessionEvent
from coordinator.responses.items import instructions_of, messages_of, paired
from coordinator.responses.transcript import USER, BranchEvent, Transcript, without_payload
from podium.models.port import LLMMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coordinator.responses.transcript import GivenResponse

__all__ = ["BranchContext", "BranchHead", "BranchReader", "ContextBuilder", "SessionFacts", "context_messages"]

_K = TypeVar("_K")
_V = TypeVar("_V")

_MAX_CHARACTERS: Final = 64 * 1024 * 1024
"""Limit of the texts that are kept of branches, and of bundles."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A session, as far as a context needs it."""

    session_id: str
    default_branch_id: str
    bundles: Sequence[str] = ()
    """The contents of the bundles that it pins, in order, by names that are the same for the same bytes."""
    is_erasable: bool = False
    """Whether its events can be erased, as those of agents can: they are read anew each time."""


@dataclass(frozen=True, slots=True)
class BranchHead:
    """The end of what is read of a branch."""

    session_id: str
    branch_id: str
    version: int
    event_id: str | None


class BranchReader(Protocol):
    """Reads the sessions of tenants. Its methods may block."""

    def session(self, tenant: str, session_id: str) -> SessionFacts:
        """Return a session.

        Raises:
            UnknownSession: the tenant has none of that id.
        """
        ...

    def events(
        self, tenant: str, session_id: str, branch_id: str, after: int
    ) -> tuple[BranchHead, Sequence[BranchEvent]]:
        """Return the head of a branch, and its events of public types up to there.

        Args:
            after: only events with a later version.

        Raises:
            UnknownBranch: the session has none of that id.
        """
        ...

    def has_artifacts(self, tenant: str, artifact_ids: frozenset[str]) -> bool:
        """Whether all of some artifacts are still there."""
        ...

    def bundle(self, content: str) -> str:
        """Return the text of a bundle."""
        ...

    def responses(self, tenant: str, session_id: str, known: Mapping[str, GivenResponse]) -> dict[str, GivenResponse]:
        """Return the responses of a session by id, in the order of ids; bodies that are known are not read again."""
        ...


@dataclass(frozen=True, slots=True)
class BranchContext:
    """Context of a session for a model."""

    head: BranchHead
    prefix: Sequence[LLMMessage] = field(repr=False)
    """The bundles."""
    transcript: Sequence[LLMMessage] = field(repr=False)
    """Transcript; without the head, if the input stands for it."""


class ContextBuilder:
    """Builds contexts, and keeps what it read. Safe to share between threads.

    Args:
        most_characters: limit of the texts that are kept of branches, of bundles, and of responses.
    """

    def __init__(self, most_characters: int = _MAX_CHARACTERS) -> None:
        self._guard = threading.Lock()
        self._lines: LRUCache[tuple[str, str, str], _Line] = LRUCache(most_characters, attrgetter("size"))
        self._bundles: LRUCache[str, str] = LRUCache(most_characters, len)
        self._responses: LRUCache[tuple[str, str], Mapping[str, GivenResponse]] = LRUCache(
            most_characters, lambda given: sum(100 + each.characters for each in given.values())
        )

    def build(
        self,
        reader: BranchReader,
        tenant: str,
        session_id: str,
        branch_id: str | None = None,
        head_event_id: str | None = None,
    ) -> BranchContext:
        """Return the context of a branch.

        Args:
            head_event_id: the last event to read; by default the branch's head.

        Raises:
            UnknownSession, UnknownBranch: there is no such session in the tenant, or no such branch in the session.
            UnknownSessionEvent: the branch has no such event.
        """
        session = reader.session(tenant, session_id)
        # Events first: a response that stands for one of them was stored before it was appended.
        key = (tenant, session_id, branch_id or session.default_branch_id)
        with self._guard:
            line = (None if session.is_erasable else self._lines.get(key)) or _NOTHING_READ
        if not reader.has_artifacts(tenant, line.artifacts):
            line = _NOTHING_READ  # a model is not sent what was deleted meanwhile
        head, more = reader.events(tenant, session_id, key[-1], line.version)
        responses = self._read_responses(reader, tenant, session_id)
        if head.version > line.version:
            size = line.size + sum(map(_size, more))
            artifacts = line.artifacts.union(each.artifact_id for each in more if each.artifact_id is not None)
            line = _Line(line.transcript.extended(more, responses), head.version, size, artifacts)
            self._keep(self._lines, key, line)
        events = line.transcript.events
        if head_event_id is not None and head_event_id != head.event_id:
            events = _up_to(events, head_event_id)
            head = replace(head, version=events[-1].version, event_id=head_event_id)
        count = len(events) - bool(events and without_payload(events[-1], USER))
        prefix = [self._bundle(reader, content) for content in session.bundles]
        if prefix:
            prefix[-1] = replace(prefix[-1], cache="long")
        return BranchContext(head, prefix, line.transcript.messages(responses, count))

    def _read_responses(self, reader: BranchReader, tenant: str, session_id: str) -> Mapping[str, GivenResponse]:
        key = (tenant, session_id)
        with self._guard:
            known = self._responses.get(key) or {}
        found = reader.responses(tenant, session_id, known)
        if found.keys() != known.keys():
            self._keep(self._responses, key, found)
        return found

    def _bundle(self, reader: BranchReader, content: str) -> LLMMessage:
        with self._guard:
            text = self._bundles.get(content)
        if text is None:
            text = reader.bundle(content)
            self._keep(self._bundles, content, text)
        return LLMMessage("system", text)

    def _keep(self, cache: LRUCache[_K, _V], key: _K, value: _V) -> None:
        with self._guard, suppress(ValueError):  # larger than the cache: it is read anew each time
            cache[key] = value


def context_messages(
    context: BranchContext | None, instructions: str | None, items: Sequence[Mapping[str, object]]
) -> list[LLMMessage]:
    """Return all messages for a model: bundles, instructions, transcript, input.

    Raises:
        EmptyContext: there is nothing to answer.
    """
    prefix = list(context.prefix) if context is not None else []
    if instructions is not None:
        prefix.append(LLMMessage("system", instructions))
    prefix += instructions_of(items)
    transcript = list(context.transcript) if context is not None else []
    if transcript:
        transcript[-1] = replace(transcript[-1], cache="short")
    said = paired([*transcript, *messages_of(items)])
    if not said:
        raise EmptyContext("there is nothing to answer: give an input, or a branch on which something was said")
    return prefix + said


def _up_to(events: Sequence[BranchEvent], event_id: str) -> Sequence[BranchEvent]:
    for index in range(len(events) - 1, -1, -1):
        if events[index].event_id == event_id:
            return events[: index + 1]
    raise UnknownSessionEvent(f"the branch has no event {event_id}", "head_event_id")


def _size(event: BranchEvent) -> int:
    return 100 + (len(event.payload) if isinstance(event.payload, str) else len(str(event.payload)))


@dataclass(frozen=True, slots=True)
class _Line:
    """Events that were read of a branch."""

    transcript: Transcript
    version: int
    """Of the head by then."""
    size: int
    artifacts: frozenset[str] = frozenset()
    """Those whose texts are in it."""


_NOTHING_READ: Final = _Line(Transcript(), 0, 0)
