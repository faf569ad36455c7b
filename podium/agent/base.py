"""`BaseAgent`, the base class of users' agents.

An instance lives for one activation: from the agent's waking until it sleeps. Durable data belongs in ``ctx.state`` or
in the workspace; attributes of the instance are a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias

from chronicle.workspace.port import Quota
from podium.agent.handlers import undefined
from podium.agent.models.delta_state import DeltaState
from podium.sandbox.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from podium.agent.context import AgentContext
    from podium.agent.retry import Retry
    from podium.events import ErrorInfo
    from podium.history.retention import Retention
    from podium.reminders.reminder import Reminder
    from podium.sandbox.policy import Rung

__all__ = ["RESOURCE_ALIASES", "BaseAgent", "Isolation", "sandbox_of", "workspace_quota_of"]

Isolation: TypeAlias = Literal["process", "shared"]
"""Whether an agent has a process of its own, or shares one with other agents of its class."""

RESOURCE_ALIASES: Final = {"num_cpus": "CPU", "num_gpus": "GPU"}
"""Ray's names of resources by those of its options; `BaseAgent.resources` may have either."""


class BaseAgent:
    """An agent: state, files and message handling.

    Subclass it, define ``on_message`` or methods that `podium.agent.handler` decorates, and declare the durable fields
    in a nested ``class State(DeltaState)``. The class is instantiated without arguments. All hooks of an agent run on
    one event loop, one at a time, in a process of its own or one that it shares (`isolation`).

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
    """The first part of the address. Default: the State's ``_entity_type``, else the class name in snake_case."""
    isolation: ClassVar[Isolation] = "process"
    """``process``: each awake agent has a process of its own. ``shared``: thousands of awake agents of the class share
    one, with one event loop: an awake agent costs kilobytes, and wakes in milliseconds. For agents that wait more than
    they compute. See the guide, "Isolation", for what differs."""
    resources: ClassVar[Mapping[str, float]] = {}
    """Resources that Ray reserves for the agent's process, or for each process that agents of the class share, such as
    ``{"num_cpus": 1, "memory": 2 * 1024**3, "num_gpus": 1}``: ``memory`` in bytes, other names as the nodes of the
    cluster declare them. Ray reserves and does not enforce. Without ``num_cpus`` it is ``PODIUM_HOST_CPUS``."""
    labels: ClassVar[Mapping[str, str]] = {}
    """Labels that a node must have to run the agent, such as ``{"zone": "a"}``, as it was started with."""
    idle_timeout_s: ClassVar[float] = 300.0
    """Seconds without a message after which `on_idle_timeout` is called. Default 5 minutes: long enough for a person's
    next message, short enough that an abandoned agent soon costs nothing."""
    turn_timeout_s: ClassVar[float] = 600.0
    """Time limit of handling one message, in seconds; then the turn fails like one that raised."""
    shutdown_timeout_s: ClassVar[float] = 10.0
    """Time limit of `on_shutdown`, in seconds."""
    max_attempts: ClassVar[int] = 3
    """Attempts of one message before it is parked, with short delays between them. The short form of `retry`."""
    retry: ClassVar[Retry | None] = None
    """How often a message is attempted before it is parked, and when; in place of ``max_attempts``. A handler may have
    its own, ``@handler(retry=Retry(...))``. After an exception that is not among ``on`` it is parked at once."""
    workspace_quota_bytes: ClassVar[int | None] = None
    """Quota of bytes for all files; old versions do not count. Writes beyond it fail with EDQUOT ("Disk quota
    exceeded"); in a plain-directory workspace, the turn fails when it ends."""
    workspace_quota_files: ClassVar[int | None] = None
    """Quota of files, directories and symlinks; likewise."""
    workspace_quota_file_bytes: ClassVar[int | None] = None
    """Limit of one file's size in bytes; writes beyond it fail with EFBIG ("File too large")."""
    max_artifact_bytes: ClassVar[int] = 1024**3
    """Limit of one artifact's size in bytes; a larger one is refused. Default 1 GiB: a client fetches it in a minute or
    two."""

    accepts_client_state: ClassVar[bool] = False
    """Whether a message from an AG-UI front end has that front end's ``state``, in ``message["ag_ui"]["state"]``. By
    default it is dropped: anyone who may send a message could put anything into it."""

    retention: ClassVar[Retention | None] = None
    """How much history is kept; ``None`` keeps all of it. With ``Retention(turns=1000)`` or ``Retention(days=30)``
    older history is dropped when the agent goes to sleep, unless forks read it. The versions of files are kept."""

    sandbox: ClassVar[Rung | Policy | None] = None
    """What the agent's commands may do (`AgentContext.run`). ``"bubblewrap"`` is the weakest rung that will do, of
    ``none``, ``landlock`` and ``bubblewrap``; a ``Policy`` also says what they read besides the workspace, their
    network, their environment and their limits. A node that cannot keep it refuses the messages of the class. By
    default a command runs on ``landlock`` or stronger, without network, and a node refuses the command only."""

    State: ClassVar[type[DeltaState]] = DeltaState
    """The class of its state; define a nested class of the same name."""

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        """Prepare an activation. Optional.

        Runs once per activation, before the first message, with the state loaded and the workspace open. Its changes
        of state and files are committed as a turn of its own. If it raises, they are rolled back, and the message that
        woke the agent counts one failed attempt.

        It answers no message: replies and artifacts are recorded and not sent to a client. Events from ``ctx.emit`` go
        to the client whose message woke the agent.
        """

    async def on_config_change(self, ctx: AgentContext[Any], changes: dict[str, tuple[Any, Any]]) -> None:
        """Adapt state and files to another configuration (``ctx.config``). Optional.

        Runs when the configuration differs from the one that the agent has seen: after `on_init` of an activation,
        before its first message, as a turn of its own. It does not run for a new agent. If it raises, its turn is
        rolled back, and the message that woke the agent counts one failed attempt; the next attempt runs it again.
        After a rewind or a fork to a turn before the change it runs again, as the state of that turn has not seen the
        change. Replies, artifacts and events are treated as in `on_init`.

        Args:
            ctx: the turn's context; ``ctx.config`` is the new configuration.
            changes: ``{key: (old, new)}`` of each key whose value differs; ``None`` for an absent one.
        """

    @undefined
    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        """Handle one message. Required of a class without handlers (`podium.agent.handler`).

        Runs for each message that names no handler, in order, one at a time. When it returns, state, files, replies and
        the message's consumption are committed together. If it raises or exceeds `turn_timeout_s`, state and files are
        rolled back to the turn before, and the message is retried, up to `max_attempts` attempts in all.

        Args:
            ctx: the turn's context; it is closed when the hook returns.
            message: the JSON object that was sent; from the command line ``{"text": ...}``.
        """
        raise NotImplementedError  # the loader refuses a class without it; only a direct call gets here

    async def on_reminder(self, ctx: AgentContext[Any], reminder: Reminder) -> None:
        """Handle a reminder that is due (`AgentContext.remind`). Optional; the default handles its message.

        Runs in place of ``on_message``, as a turn like that of any other message: in the order of the inbox, with the
        same time limit and attempts. A reminder of a time that passed while no service ran comes late; the times that
        a repeated one missed come once.

        Args:
            ctx: the turn's context; its replies are recorded, and no client reads them.
            reminder: its name, the time at which it was due, its message, and the number of missed times.
        """
        from podium.agent.handler_specs import call_for  # noqa: PLC0415  few agents have both

        _, call = call_for(self, reminder.message)
        await call(ctx)

    async def on_failed(self, ctx: AgentContext[Any], message: dict[str, Any], error: ErrorInfo) -> None:
        """Act on a message that was parked after its last attempt: undo, note or report it. Optional.

        Runs once for each time that a message is parked, as a turn of its own: the agent gets a message about it,
        behind those that wait already, in the commit that parks it, so that no death of a process loses it. It has the
        time limit of any turn and the attempts of the class. If its last attempt fails, it is parked itself, and
        ``on_failed`` does not run for that. The message that failed stays parked. If it was retried or dropped before
        this turn begins, the turn is cancelled. A later message neither interrupts nor steers it.

        Args:
            ctx: the turn's context, with the caller of the message that failed, through this agent. Its replies are
                recorded, and no client reads them.
            message: the JSON object that was sent, or a reminder's message.
            error: the type and text of the error of the last attempt; ``HostLost`` if its process ended.
        """

    async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        """Handle a message that was sent to steer the running turn. Optional; without it such a message waits its turn.

        Runs concurrently with ``on_message``, on the same event loop; one call at a time. It is the same turn: the
        changes of both to state, files and replies are committed together, and the commit consumes both messages. Tell
        ``on_message`` about the message by an attribute of the instance or an ``asyncio.Event``. A message that arrives
        after ``on_message`` has returned waits its turn. If this hook raises, the turn fails as if ``on_message`` had
        raised; the message then waits, and ``on_message`` handles it in its place.

        Args:
            ctx: the running turn's context; its replies go to the sender of this message.
            message: the JSON object that was sent.
        """

    async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
        """Return whether the agent may sleep. Optional; the default is ``True``.

        Runs after `idle_timeout_s` without a message. ``False`` keeps the agent awake for another such interval. Its
        changes are committed as a turn of its own. If it raises, the failure is recorded and the agent sleeps.
        """
        return True

    async def on_shutdown(self, ctx: AgentContext[Any]) -> None:
        """Clean up before an orderly end. Optional.

        Runs when the agent goes to sleep or its service ends, not when its process is killed, so do not rely on it. Its
        time limit is `shutdown_timeout_s`. Its changes are committed as a turn of its own. If it raises, they are
        rolled back and the agent ends all the same.
        """


def sandbox_of(agent_class: type[BaseAgent]) -> Policy | None:
    """Return what a class declares of its commands; ``None`` if it declares nothing.

    Raises:
        SandboxRefused: there is no such rung.
    """
    declared = agent_class.sandbox
    return Policy(at_least=declared) if isinstance(declared, str) else declared


def workspace_quota_of(agent_class: type[BaseAgent]) -> Quota | None:
    """Return the quota that a class declares for its workspaces; ``None`` if it declares none."""
    quota = Quota(
        agent_class.workspace_quota_bytes, agent_class.workspace_quota_files, agent_class.workspace_quota_file_bytes
    )
    return None if quota == Quota() else quota
