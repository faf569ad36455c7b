"""Effects of a step's function: what it says and sends, so that a replay of the step says and sends it again.

Replies, results and messages to other agents are collected by the turn's scope and committed with the turn. A further
attempt does not run the function, so its part of them is in the step's record: pieces of replies with the ordinal of
the reply, results, messages, and artifacts, whose contents are durable before the record is. So are trees of forks,
which a replay leaves alone: they are in the record for gc. Events of `AgentContext.emit` are not recorded anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from podium.address import Address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.canonical import Json, JsonObject
    from chronicle.workspace.port import TreeRef
    from podium.agent.reply import Reply
    from podium.turn.telemetry import Span

__all__ = ["RunningStep", "StepSink", "current_step", "inside", "repeat_effects"]


@dataclass(slots=True, eq=False)
class RunningStep:
    """A step whose function runs."""

    key: str
    name: str
    args_hash: str
    started_ms: int
    before: int
    """How many changes of the state were drained and not recorded when it began."""
    overlaps: bool
    """Whether another step ran at some time while it did."""
    effects: list[Json] = field(default_factory=list)
    span: Span | None = None
    """Its span, once its function runs."""
    attempts: int = 1
    """Calls of its function so far."""
    is_read: bool = False
    """Whether it goes on only as the hook reads its parts."""

    def note_text(self, ordinal: int, text: str, *, begun: bool = False, end: bool = False) -> None:
        """Note a piece of a reply: its beginning, a text, its end."""
        last = cast("list[Any]", self.effects[-1]) if self.effects else None
        if last and last[0] == "text" and last[1] == ordinal and not begun and not last[4]:
            last[3] += text
            last[4] = end
        else:
            self.effects.append(["text", ordinal, begun, text, end])

    def note_tell(self, receiver: Address, message: JsonObject, due_ms: int | None) -> None:
        """Note a message to another agent, and when it is sent."""
        self.effects.append(["tell", receiver.name, message, *([] if due_ms is None else [due_ms])])

    def note_result(self, value: Json) -> None:
        """Note a result of the message."""
        self.effects.append(["result", value])

    def note_artifact(self, payload: JsonObject) -> None:
        """Note an artifact, by the payload of its event."""
        self.effects.append(["artifact", payload])

    def note_tree(self, tree: TreeRef) -> None:
        """Note a tree that the step has made beside the files of the agent."""
        self.effects.append(["tree", tree.tree_id, tree.oplog_id])


_step: Final[ContextVar[RunningStep | None]] = ContextVar("podium_step", default=None)

current_step: Final = _step.get
"""Return the step whose function is the calling code; ``None`` outside of steps."""


@contextmanager
def inside(step: RunningStep) -> Iterator[None]:
    """Make the ``with`` block, with its tasks and threads, code of a step."""
    before = _step.set(step)
    try:
        yield
    finally:
        _step.reset(before)


class ReplayedReplies(Protocol):
    """The replies of a hook, as a replayed step uses them."""

    async def begin(self) -> Reply:
        """Begin a reply, and tell the client."""
        ...

    def by_ordinal(self, ordinal: int) -> Reply | None:
        """Return a reply that was begun, by its ordinal; ``None`` if there is none."""
        ...

    def set_result(self, value: object) -> None:
        """Set the result of the message."""
        ...


class ReplayedOutbox(Protocol):
    """The outgoing messages of a hook, as a replayed step uses them."""

    def tell(self, receiver: Address, message: JsonObject, due_ms: int | None = None) -> str:
        """Add a message to another agent."""
        ...


class ReplayedArtifacts(Protocol):
    """The artifacts of a hook, as a replayed step uses them."""

    async def add_again(self, payload: JsonObject) -> None:
        """Add an artifact whose content is stored."""
        ...


class StepSink(Protocol):
    """The scope of a hook, as a replayed step uses it."""

    @property
    def replies(self) -> ReplayedReplies:
        """Its replies."""
        ...

    @property
    def outbox(self) -> ReplayedOutbox:
        """Its messages to other agents."""
        ...

    @property
    def artifacts(self) -> ReplayedArtifacts:
        """Its artifacts."""
        ...


async def repeat_effects(effects: Sequence[Json], sink: StepSink, tenant: str) -> None:
    """Say and send what the function of an ended step did.

    Args:
        tenant: the agent's.
    """
    replies: dict[int, Reply] = {}
    for effect in effects:
        kind, *parts = cast("list[Any]", effect)
        if kind == "text":
            ordinal, begun, text, end = parts
            reply = replies.get(ordinal) or (None if begun else sink.replies.by_ordinal(ordinal))
            replies[ordinal] = reply = reply or await sink.replies.begin()
            if not reply.finished:
                await reply.stream_token(text, final=end)
        elif kind == "tell":
            name, message, *due_ms = parts
            sink.outbox.tell(Address.parse(name, tenant), message, *due_ms)
        elif kind == "artifact":
            await sink.artifacts.add_again(parts[0])
        elif kind == "result":
            sink.replies.set_result(parts[0])
