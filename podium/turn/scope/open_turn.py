"""A turn while its hooks run: what they share, and what they have collected for its commit."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field, replace
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from chronicle.journal.records import Draft, SetReminder
from podium.caller import NOBODY, Caller
from podium.errors import ContextMisuse, UnknownAgentType
from podium.events import MODEL_CALLED
from podium.messages.headers import caller_in
from podium.turn.scope.recorded_calls import name_texts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.ids import EventId
    from chronicle.journal.records import DropReminder, InboxMessage, OutboxMessage, Reminder
    from chronicle.workspace.port import Workspace
    from podium.address import Address
    from podium.agent.reply import Reply
    from podium.artifacts.writing import ArtifactWriter
    from podium.reminders.delayed import DelayedMessage
    from podium.sandbox.policy import Policy
    from podium.turn.ports import Environment
    from podium.turn.scope.recorded_calls import RecordedCalls
    from podium.turn.steps.turn_steps import TurnSteps
    from podium.turn.stream import Frame

__all__ = ["YIELD_INTERVAL_S", "OpenTurn", "RunningHook"]

YIELD_INTERVAL_S: Final = 0.002
"""Longest time that a hook which streams without waiting keeps the event loop. A delay of 2 ms is not visible, and an
iteration of the loop for each token would cost more than the token."""


@dataclass(slots=True)
class OpenTurn:
    """A turn that is not committed yet."""

    number: int
    """The number that it gets when it commits."""
    address: Address
    """The agent's."""
    env: Environment
    workspace: Workspace
    artifacts: ArtifactWriter
    """Stores the contents of artifacts."""
    stored_reminders: Callable[[], Awaitable[Sequence[Reminder]]]
    """Reads the agent's reminders as the last commit left them, with its delayed messages."""
    sandbox: Policy | None
    """What the class declares of its commands."""
    calls: RecordedCalls
    """Its calls of models."""
    steps: TurnSteps | None = None
    """Its steps; ``None`` in a turn that handles no message."""
    deadline_ms: int = 0
    """Its deadline, if it handles a message."""
    traceparent: str | None = None
    """The ``traceparent`` of its span; ``None`` if nothing is traced."""
    replies: list[Reply] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    outbox: list[OutboxMessage] = field(default_factory=list)
    """The messages that it sends to other agents."""
    delayed: list[DelayedMessage] = field(default_factory=list)
    """Those that it sends later."""
    reminders: dict[str, SetReminder | DropReminder] = field(default_factory=dict)
    """The last change of each reminder, by name."""
    result_drafts: dict[str, Draft] = field(default_factory=dict)
    """The latest result of each message, by the message's id."""
    tokens: int = 0
    """Pieces of text that were streamed."""
    over: bool = False
    yield_s: float = field(default_factory=lambda: asyncio.get_running_loop().time() + YIELD_INTERVAL_S)
    """When the next frame yields to the event loop, by the loop's clock."""

    @property
    def results(self) -> Mapping[str, Json]:
        """The results of its messages, by message id; a message without a result is absent."""
        return {key: cast("JsonObject", draft.payload)["data"] for key, draft in self.result_drafts.items()}

    @property
    def changed_reminders(self) -> Sequence[SetReminder | DropReminder]:
        """The reminders that it sets and drops."""
        return tuple(self.reminders.values())

    def check_open(self) -> None:
        """Raise `ContextMisuse` if the turn is over."""
        if self.over:
            raise ContextMisuse(
                f"turn {self.number} is over: a context works only inside its hook; "
                "await what you start before the hook returns"
            )

    def check_known(self, receiver: Address) -> None:
        """Raise `UnknownAgentType` if no class of an address is known."""
        known = self.env.known_types()
        if known is not None and receiver.agent_type not in known:
            raise UnknownAgentType(receiver.agent_type, tuple(sorted(known)))

    async def finish(self) -> Sequence[Draft]:
        """Finish the open replies, close the turn for its hooks, and return its events."""
        for reply in self.replies:
            await reply.finish()
        self.drafts.extend(self.result_drafts.values())
        if MODEL_CALLED in map(attrgetter("type"), self.drafts):
            name_texts(self.drafts)
        self.close()
        return self.drafts

    def close(self) -> None:
        """Stop collecting."""
        self.over = True
        self.artifacts.close()


@dataclass(frozen=True, slots=True)
class RunningHook:
    """A hook of an open turn: the turn's own, or ``on_steer`` of a message that steers it."""

    turn: OpenTurn
    message: InboxMessage | None
    """The message that it handles; ``None`` in hooks other than ``on_message`` and ``on_steer``."""
    send: Callable[[Frame], None]
    """Sends a frame to the client."""
    step_prefix: str = ""
    """Of the keys of its steps."""

    @property
    def message_id(self) -> str | None:
        """The id of the message that it handles."""
        return self.message.message_id if self.message is not None else None

    @property
    def caller(self) -> Caller:
        """Who asks for it, by the message; changing the claims changes nothing else."""
        found = (caller_in(self.message.headers) if self.message is not None else None) or NOBODY
        claims = MappingProxyType(deepcopy(dict(found.claims)))
        return replace(found, claims=claims, tenant=self.turn.address.tenant)

    @property
    def sent_caller(self) -> Caller:
        """Who asks for what it sends to other agents, or sends itself later."""
        return self.caller.through(str(self.turn.address))

    def record(self, event_type: str, payload: JsonObject, event_id: EventId | None = None) -> None:
        """Add an event to the turn.

        Raises:
            PodiumError: the turn is over.
        """
        self.turn.check_open()
        self.turn.drafts.append(self.draft(event_type, payload, event_id))

    def draft(self, event_type: str, payload: JsonObject, event_id: EventId | None = None) -> Draft:
        """Return an event of the turn that is an effect of the hook's message."""
        env, message_id = self.turn.env, self.message_id
        now_ms = env.clock.now_ms()
        event_id = event_id or env.ids.event(now_ms)
        return Draft(event_id, event_type, payload, self.turn.number, now_ms, message_id, message_id)
