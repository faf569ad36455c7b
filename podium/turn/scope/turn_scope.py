"""The scope of a hook: what an `AgentContext` forwards to, an object for each subject.

A scope belongs to one hook, and makes an object when it is first used: most turns use few. A message that steers a
running turn gets a scope of its own, which collects into the same turn (`TurnScope.steered`). A further capability of
agents is a file beside this one, and a property here.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from podium.events import USER_MESSAGE
from podium.turn.journal.commit import user_message
from podium.turn.scope.artifacts import Artifacts
from podium.turn.scope.asks import Asks
from podium.turn.scope.commands import Commands
from podium.turn.scope.history import FileHistory
from podium.turn.scope.model_calls import ModelCalls
from podium.turn.scope.open_turn import RunningHook
from podium.turn.scope.outbox import Outbox
from podium.turn.scope.pauses import Pauses
from podium.turn.scope.reminders import Reminders
from podium.turn.scope.replies import Replies
from podium.turn.scope.steps import Steps
from podium.turn.scope.tools import ToolCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.ids import EventId
    from chronicle.journal.records import InboxMessage
    from podium.turn.scope.open_turn import OpenTurn
    from podium.turn.stream import Frame

__all__ = ["TurnScope"]


class TurnScope:
    """The capabilities of one hook.

    Args:
        turn: the turn that the hook belongs to.
        message: the message being handled; ``None`` in hooks other than ``on_message`` and ``on_steer``.
        send: sends a frame to the client.
        step_prefix: of the keys of its steps.
    """

    def __init__(
        self, turn: OpenTurn, message: InboxMessage | None, send: Callable[[Frame], None], step_prefix: str = ""
    ) -> None:
        self.turn = turn
        self.hook = RunningHook(turn, message, send, step_prefix)
        self.replies = Replies(self.hook)

    @cached_property
    def models(self) -> ModelCalls:
        """Calls of models."""
        return ModelCalls(self.hook)

    @cached_property
    def commands(self) -> Commands:
        """Commands in a sandbox."""
        return Commands(self.hook, self.replies, self.steps, self.artifacts)

    @cached_property
    def tools(self) -> ToolCalls:
        """Calls of tools."""
        return ToolCalls(self.hook, self.replies, self.steps, self.artifacts)

    @cached_property
    def outbox(self) -> Outbox:
        """Messages to other agents."""
        return Outbox(self.hook)

    @cached_property
    def reminders(self) -> Reminders:
        """Reminders."""
        return Reminders(self.hook)

    @cached_property
    def steps(self) -> Steps:
        """Steps."""
        return Steps(self.hook, self)

    @cached_property
    def asks(self) -> Asks:
        """Questions to other agents."""
        return Asks(self.hook, self.steps)

    @cached_property
    def pauses(self) -> Pauses:
        """Pauses."""
        return Pauses(self.hook)

    @cached_property
    def files(self) -> FileHistory:
        """Versions of files."""
        return FileHistory(self.hook)

    @cached_property
    def artifacts(self) -> Artifacts:
        """Artifacts."""
        return Artifacts(self.hook, self.replies)

    def record_message(self, message: InboxMessage, event_id: EventId) -> None:
        """Add the message being handled to the turn, under the event id that its ``turn_start`` frame announced."""
        self.hook.record(USER_MESSAGE, user_message(message), event_id)

    def steered(self, message: InboxMessage, send: Callable[[Frame], None], event_id: EventId) -> TurnScope:
        """Return a scope of the same turn for a message that steers it, and record the message as an event."""
        scope = TurnScope(self.turn, message, send, f"{message.message_id}:")
        scope.record_message(message, event_id)
        return scope
