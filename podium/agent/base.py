"""`BaseAgent`: what a user subclasses.

One instance lives for one activation: from the agent's waking to its going to sleep. What must outlast that belongs
in ``ctx.state`` or in the workspace; attributes of the instance are a cache.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from chronicle.workspace.port import Quota
from podium.agent.models.delta_state import DeltaState

if TYPE_CHECKING:
    from podium.agent.context import AgentContext
    from podium.history.retention import Retention

__all__ = ["BaseAgent", "agent_type_of", "workspace_quota_of"]


class BaseAgent:
    """An agent: state, files and a way to handle messages.

    Subclass it, write ``on_message``, and declare what to remember in a nested ``class State(DeltaState)``. The class
    is created without arguments. All hooks run on one event loop, one at a time, in the agent's own process.

    Example::

        class Counter(BaseAgent):
            class State(DeltaState):
                count: int = 0

            async def on_message(self, ctx, message):
                ctx.state.count += 1
                reply = await ctx.send_message("")
                await reply.stream_token(f"That was message {ctx.state.count}.", final=True)
    """

    agent_type: ClassVar[str | None] = None
    """The first part of its address; without it, the State's ``_entity_type``, else the class name in snake_case."""
    idle_timeout_s: ClassVar[float] = 300.0
    """Seconds without a message after which `on_idle_timeout` is asked. Default 5 minutes: long enough for a person's
    next message, short enough that a forgotten agent costs nothing by the next coffee."""
    turn_timeout_s: ClassVar[float] = 600.0
    """Seconds that handling one message may take; then the turn is rolled back like one that raised."""
    shutdown_timeout_s: ClassVar[float] = 10.0
    """Seconds that `on_shutdown` may take."""
    max_attempts: ClassVar[int] = 3
    """Tries of one message before it is parked."""
    workspace_quota_bytes: ClassVar[int | None] = None
    """How many bytes its files may have in all; old versions do not count. Writing more fails with EDQUOT ("Disk quota
    exceeded"); where the workspace is a plain directory, the turn fails when it ends."""
    workspace_quota_files: ClassVar[int | None] = None
    """How many files, directories and symlinks it may have; likewise."""
    workspace_quota_file_bytes: ClassVar[int | None] = None
    """How many bytes one file may have; writing more fails with EFBIG ("File too large")."""
    max_artifact_bytes: ClassVar[int] = 1024**3
    """How many bytes one artifact may have; handing out more is refused. Default 1 GiB: what a client still
    fetches in a minute or two."""

    retention: ClassVar[Retention | None] = None
    """How much of its history is kept; all of it without one. With ``Retention(turns=1000)`` or ``Retention(days=30)``
    what is older is dropped when the agent goes to sleep, unless forks read it. The versions of its files are kept."""

    State: ClassVar[type[DeltaState]] = DeltaState
    """What it remembers; a nested class of the same name replaces it."""

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        """Prepare an activation. Optional.

        Runs once per activation, before the first message, with state loaded and the workspace mounted. What it
        changes in state or files is committed as a turn of its own. If it raises, nothing of it is kept, and the
        messages that wait count one failed attempt each time the agent is woken.

        It answers no message: replies and artifacts are recorded and reach no client. What it emits goes to the client
        whose message woke the agent.
        """

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        """Handle one message. Required.

        Runs once for each message, in order, one at a time. When it returns, state, files, replies and the message's
        consumption are committed together. If it raises or takes longer than `turn_timeout_s`, state and files go
        back to the turn before, and the message is tried again, `max_attempts` times in all.

        Args:
            ctx: this turn's context; it is over when the hook returns.
            message: the JSON object that was sent; from the command line ``{"text": ...}``.
        """
        raise NotImplementedError  # refused when the class is loaded; only a call by hand comes here

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        """Take a message that was sent to steer the turn that runs. Optional; without it such a message waits its turn.

        Runs beside ``on_message``, on the same event loop, while that awaits something; one call at a time. It is the
        same turn: what either changes in state, files and replies is committed together, and consumes both messages.
        Let ``on_message`` see what came, say by an attribute of the instance or an ``asyncio.Event``. A message that
        comes after ``on_message`` has returned waits its turn. If this raises, the turn fails like one whose
        ``on_message`` raised; the message waits then, and is handled by ``on_message`` in its own place.

        Args:
            ctx: the running turn's context, whose replies go to the sender of this message.
            message: the JSON object that was sent.
        """

    async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
        """Say whether the agent may go to zero. Optional; ``True`` without it.

        Runs after `idle_timeout_s` without a message. ``False`` keeps it awake for another such time. What it
        changes is committed as a turn of its own. If it raises, that is recorded and the agent goes to zero.
        """
        return True

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        """Tidy up before an orderly end. Optional.

        Runs when the agent goes to zero or its service ends, not when its process is killed; so nothing may rely on
        it. It has `shutdown_timeout_s`. What it changes is committed as a turn of its own. If it raises, nothing of it
        is kept and the agent ends all the same.
        """


def agent_type_of(cls: type[BaseAgent]) -> str:
    """Return an agent class's type: ``agent_type``, else its State's ``_entity_type``, else its name in snake_case."""
    if cls.agent_type:
        return cls.agent_type
    entity_type = cls.State._entity_type  # noqa: SLF001  the documented way to declare it
    if entity_type:
        return entity_type
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()


def workspace_quota_of(agent_class: type[BaseAgent]) -> Quota | None:
    """Return what a class lets its workspaces hold; ``None`` if it says nothing."""
    quota = Quota(
        agent_class.workspace_quota_bytes, agent_class.workspace_quota_files, agent_class.workspace_quota_file_bytes
    )
    return None if quota == Quota() else quota
