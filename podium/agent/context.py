"""`AgentContext`: the interface of a hook to its turn.

A context belongs to one turn. What it collects (replies, artifacts, messages) is committed with the turn or dropped
with it. Tokens reach the client as they are produced, before the commit; a retry's ``turn_start`` invalidates them.

Most methods only forward to the turn's scope. That seam is intended: the context is the stable public interface, the
scope an internal of :mod:`podium.turn`.
"""

from __future__ import annotations

from contextlib import aclosing
from copy import deepcopy
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, Literal, Never, Unpack, cast, overload

from typing_extensions import TypeVar

from chronicle.errors import WrongType
from podium.address import Address
from podium.agent.agent_types import agent_type_of
from podium.agent.answer import Answer
from podium.agent.asking import Asking
from podium.agent.models.delta_state import DeltaState
from podium.agent.remote import RemoteHandlers
from podium.agent.reply import Reply
from podium.answer_schema import NO_DEFAULT
from podium.errors import InvalidAddress
from podium.state.plain_json import sent_json, sent_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from datetime import datetime, timedelta
    from os import PathLike
    from pathlib import Path

    import structlog

    from chronicle.canonical import Json, JsonObject
    from chronicle.workspace.port import Iteration, Workspace
    from podium.agent.answer import AnswerPart
    from podium.agent.commands import CommandOptions, OnOutput, Place, Ran, Tried
    from podium.agent.handler_specs import HandlerSpec
    from podium.agent.llm import AgentModel
    from podium.agent.retry import Retry
    from podium.agent.tools import AgentTools
    from podium.caller import Caller
    from podium.models.quality import QualityOfService
    from podium.reminders.reminder import ScheduledReminder
    from podium.tools import ToolRouter
    from podium.turn.scope.turn_scope import TurnScope

__all__ = ["AgentContext", "Reply"]

S = TypeVar("S", bound=DeltaState, default=Any)
R = TypeVar("R")
A = TypeVar("A")
D = TypeVar("D", default=Never)


class AgentContext(Generic[S]):
    """One turn, as the agent's code sees it.

    Attributes:
        state: the agent's durable state; changes are tracked and committed with the turn. The hook, its tasks and code
            that it runs by ``asyncio.to_thread`` may change it until the hook returns; any other change raises
            `podium.state.OutsideTurn`.
        turn: the number that this turn gets when it commits; from 1.
    """

    state: S

    def __init__(
        self,
        scope: TurnScope,
        address: Address,
        state: S,
        workspace: Workspace,
        config: Mapping[str, Json] | None = None,
    ) -> None:
        self._scope = scope
        self._address = address
        self._config = config or {}
        self.state = state
        self._workspace = workspace
        self.turn = scope.turn.number

    @property
    def workspace(self) -> Path:
        """The agent's directory, at the same path in each activation.

        In process isolation ``$AGENT_WORKSPACE`` has the same path; its value during the import of the agent's file is
        valid for this activation only. In shared isolation the directory is mounted when it is first asked for in an
        activation, which takes some milliseconds.

        Raises:
            ChronicleError: it could not be mounted.
        """
        return self._workspace.root

    @cached_property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A structured logger, bound to agent and turn."""
        import structlog  # noqa: PLC0415  importing it takes as long as all other imports of an agent's file

        logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger("podium.agent")
        return logger.bind(agent_id=str(self._address), turn=self.turn)

    @property
    def agent_id(self) -> str:
        """The agent's address, ``type/key``."""
        return str(self._address)

    @property
    def key(self) -> str:
        """The second part of the address."""
        return self._address.key

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The configuration of the agent's type (``[config.TYPE]`` of ``podium.toml``), read-only.

        It is the same for the whole activation. Lists and dicts in it are copies of this turn.
        """
        return MappingProxyType(deepcopy(dict(self._config)))

    def get_config(self, key: str, default: Any = None) -> Any:
        """Return a value of the configuration; ``default`` if it has no such key."""
        return self.config.get(key, default)

    @property
    def message_id(self) -> str | None:
        """The id of the message being handled; ``None`` in other hooks."""
        return self._scope.hook.message_id

    @property
    def sender(self) -> str | None:
        """The address of the agent that sent the message, with `tell` or `ask`.

        ``None`` for the message of a client or of a reminder, and in other hooks.
        """
        message = self._scope.hook.message
        return message.sender if message is not None else None

    @cached_property
    def caller(self) -> Caller:
        """Who asks: tenant, key, scopes, the claims of a token, and the agents through which it came.

        It was recorded when the message was admitted, so each attempt has the same one, and it is not what the message
        says of itself. In hooks that handle no message it has no scopes.
        """
        return self._scope.hook.caller

    @property
    def traceparent(self) -> str | None:
        """The W3C ``traceparent`` of this turn, for calls to other services; ``None`` if nothing is traced."""
        return self._scope.turn.traceparent

    async def send_message(self, text: str = "") -> Reply:
        """Begin a reply to the client.

        Args:
            text: its first piece; empty to stream all of it.

        Returns:
            the reply; continue it with ``stream_token``.

        Raises:
            PodiumError: the turn is over.
        """
        reply = await self._scope.replies.begin()
        if text:
            await reply.stream_token(text)
        return reply

    def reply(self, value: object) -> None:
        """Set the JSON result of the message being handled: ``data`` in its answer; the last call wins.

        It is recorded with the turn's commit (event ``message.answered``) and sent with the turn's end; a failed turn
        has none. In ``on_steer`` it is the result of the message that steers. Replies of text are independent of it.

        Args:
            value: text, a number, a bool, ``None``, or lists and dicts of them; it is copied.

        Raises:
            InvalidValue: JSON cannot represent it; the message has the path.
            PodiumError: the hook handles no message, or the turn is over.
        """
        self._scope.replies.set_result(value)

    async def emit(self, name: str, data: JsonObject | None = None) -> None:
        """Send an agent-defined event to the client at once. It is not recorded.

        Args:
            name: the event's name, such as ``progress``.
            data: a JSON object.

        Raises:
            InvalidInput: ``data`` is not JSON.
            PodiumError: the turn is over.
        """
        await self._scope.replies.emit(name, data or {})

    async def tell(self, agent: str, message: JsonObject, *, after: timedelta | float | str | None = None) -> str:
        """Send a message to another agent, as part of this turn.

        It is delivered after the turn is committed, at least once, and the receiver drops duplicates; if the turn
        fails, it is not delivered. The receiver need not exist yet. Its ``ctx.sender`` is this agent's address.

        The receiver is woken if the service knows its class: from the project that ``podium up`` serves, or from a
        ``podium run`` with that class. With a project, an address of a type that is not known is refused. Without one,
        the message stays in the inbox of that address until its class is known. `podium inbox` lists pending messages.

        Args:
            agent: the receiver's address, ``type/key``; the tenant is the sender's.
            message: a JSON object, the argument of its ``on_message``.
            after: how long after this call it is sent: seconds, a ``timedelta``, or a text such as ``"2h"``; at most
                five years. Until then `cancel_reminder` takes it back by its id, and it is one of this agent's
                reminders for others to see and to cancel. It goes with this agent; a fork does not have it, and a
                rewind leaves it. By default it is sent at once.

        Returns:
            the message's id.

        Raises:
            InvalidAddress: ``agent`` is not an address, or one of another tenant.
            InvalidInput: ``message`` is not a JSON object, ``agent`` is not text, or ``after`` cannot be used.
            UnknownAgentType: the project has no agent class of that type; nothing is sent.
            PodiumError: the turn is over.
        """
        message = sent_object(message, "tell")
        receiver, outbox = self._receiver(agent, "tell"), self._scope.outbox
        return outbox.tell(receiver, message) if after is None else outbox.tell_after(receiver, message, after)

    def _receiver(self, agent: object, method: str) -> Address:
        """Return the address of a message's receiver, after checking it."""
        if not isinstance(agent, str):
            raise WrongType(f"{method} takes an address, a text such as 'hello/alice', not {type(agent).__name__}")
        receiver = Address.parse(agent, self._address.tenant)
        if receiver.tenant != self._address.tenant:
            raise InvalidAddress(
                f"{receiver} is of another tenant than {self._address}; write type/key of the same one"
            )
        return receiver

    @overload
    def ask(self, agent: type[A], message: str, *, timeout: float | None = None) -> A: ...

    @overload
    def ask(self, agent: str, message: JsonObject, *, timeout: float | None = None) -> Asking: ...

    def ask(self, agent: str | type[Any], message: JsonObject | str, *, timeout: float | None = None) -> Any:
        """Ask another agent, and wait for its answer: ``await ctx.ask("searcher/kim", {"text": "cats"})``.

        With a class instead of an address, a handler of that class is asked, and its result awaited:
        ``await ctx.ask(Searcher, "kim").search(Query(text="cats"))``.

        The parts of the answer can be read while the other agent works, by ``ctx.ask("searcher/kim", {...}).stream()``
        and ``ctx.ask(Searcher, "kim").search.stream(Query(text="cats"))``; see `podium.agent.asking.Asking.stream`.

        The question is sent at once, unlike by `tell`, and is not taken back if this turn fails. It is a step: a
        further attempt of this turn does not ask again, and one that follows a crash meanwhile waits for the answer to
        the same question. The receiver handles it like any message, once; its ``ctx.sender`` is this agent's address.

        The receiver's turn must end by this turn's deadline, or by the timeout, and so must those of agents that it
        asks itself. Agents must not ask in a circle.

        Args:
            agent: the receiver's address, ``type/key``; the tenant is the asker's. Or its class.
            message: a JSON object, the argument of its ``on_message``; with a class the receiver's key.
            timeout: seconds to wait; by default up to this turn's deadline.

        Returns:
            the answer, to be awaited; with a class an object that has its handlers.

        Raises:
            AskFailed: the receiver's handling of it failed and was parked, or it was cancelled.
            AskRefused: a quota of the tenant forbids to make or to wake the receiver; nothing was sent.
            AskTimeout: no answer came in time; the receiver drops the question unless it has begun with it.
            AskCycle: the agent is this one, or one that waits for this turn; the message has the path.
            InvalidAddress, InvalidInput, UnknownAgentType: as for `tell`.
            InvalidMessage: the argument of a handler does not fit; nothing was sent.
            PodiumError: the hook handles no message, or the turn is over.
        """
        if not isinstance(agent, type):
            return Asking(self._ask(agent, message, timeout), lambda: self._parts(agent, message, timeout))
        receiver, asks = f"{agent_type_of(agent)}/{message}", self._scope.asks

        async def call(spec: HandlerSpec, argument: object) -> Any:
            return await asks.call(self._receiver(receiver, "ask"), spec, argument, _seconds(timeout))

        async def stream(spec: HandlerSpec, argument: object) -> AsyncGenerator[AnswerPart[Any], None]:
            streamed = asks.call_stream(self._receiver(receiver, "ask"), spec, argument, _seconds(timeout))
            async with aclosing(streamed) as parts:
                async for part in parts:
                    yield part

        return RemoteHandlers(agent, call, stream)

    async def _ask(self, agent: str, message: object, timeout_s: float | None) -> Answer:
        message = sent_object(message, "ask")
        receiver = self._receiver(agent, "ask")
        answer = await self._scope.asks.ask(receiver, message, _seconds(timeout_s))
        return Answer(**cast("dict[str, Any]", answer))

    async def _parts(
        self, agent: str, message: object, timeout_s: float | None
    ) -> AsyncGenerator[AnswerPart[Any], None]:
        message = sent_object(message, "ask")
        receiver = self._receiver(agent, "ask")
        async with aclosing(self._scope.asks.stream(receiver, message, _seconds(timeout_s))) as parts:
            async for part in parts:
                yield part

    async def remind(
        self,
        name: str,
        *,
        at: datetime | str | None = None,
        every: timedelta | float | None = None,
        cron: str | None = None,
        message: JsonObject | None = None,
        tz: str | None = None,
    ) -> datetime:
        """Have this agent reminded: at a time, in intervals, or by a cron line. It is woken for that if it sleeps.

        The reminder is set by the commit of this turn, and takes the place of one of that name. At each of its times
        the agent gets a message, for which `BaseAgent.on_reminder` runs. It is handled once for each time, or later:
        while no service runs, reminders wait, and the times that a repeated one misses come as one. A fork has none of
        the reminders; a rewind leaves them as they are.

        Args:
            name: of the reminder; unique in the agent.
            at: a time after the admission of the message that is handled, so that a late or repeated attempt can set
                the same one; if it has passed meanwhile, it is due at once. Text is ISO 8601.
            every: an interval of a second or more, as a number of seconds or a ``timedelta``, from now on.
            cron: a cron line of five fields, such as ``"0 9 * * MON-FRI"``.
            message: a JSON object for the agent; empty by default.
            tz: the time zone of ``cron``, such as ``"Europe/Berlin"``, by default UTC; or of an ``at`` without one.

        Returns:
            the first time, in UTC.

        Raises:
            InvalidInput: an argument cannot be used: not one of ``at``, ``every`` and ``cron`` is given, ``at`` is in
                the past, the cron line or the time zone does not exist, the message is not JSON.
            PodiumError: the turn is over.
        """
        from podium.reminders.setting import new_reminder  # noqa: PLC0415  the library of cron lines

        reminders = self._scope.reminders
        change, due = new_reminder(
            reminders.setter(),
            name,
            message or {},
            at=at,
            every=every,
            cron=cron,
            tz=tz,
        )
        reminders.change(change)
        return due

    async def reminders(self) -> Sequence[ScheduledReminder]:
        """Return the reminders of this agent, by name, as they are after the changes of this turn.

        Raises:
            PodiumError: the turn is over.
        """
        from podium.reminders.plans import scheduled  # noqa: PLC0415

        return [scheduled(reminder) for reminder in await self._scope.reminders.list()]

    async def cancel_reminder(self, name: str) -> bool:
        """Cancel a reminder, or a message that is sent later (`tell`), as part of this turn.

        What was sent already is not taken back.

        Args:
            name: of the reminder; or the id of the message, which `tell` has returned outside of a step.

        Returns:
            whether there was one.

        Raises:
            PodiumError: the turn is over, or a step runs.
        """
        return await self._scope.reminders.cancel(name)

    async def add_artifact(self, name: str, data: bytes | str | Path, media_type: str | None = None) -> str:
        """Publish a named piece of content as part of this turn: a report, an image, a data set.

        The artifact exists once the turn is committed, and not at all if the turn fails. It is immutable, and can be
        fetched by its id while the turn is kept. Its frame is sent to the client at once. Each call adds a new
        artifact, even under a name that is in use.

        Cancelling the call adds nothing.

        Args:
            name: a file name, such as ``report.pdf``; without ``/``, at most 255 bytes.
            data: its bytes; or text, which is stored as UTF-8; or a ``Path`` of a file in the workspace, relative to
                it or absolute, which is read now. The file is not held in memory. If it is written to meanwhile, the
                content is a mixture.
            media_type: such as ``text/csv``; derived from the name by default.

        Returns:
            the artifact's id, ``art_…``.

        Raises:
            InvalidInput: the name or media type cannot be used, the path is not a file in the workspace, or the content
                is larger than the class's ``max_artifact_bytes``.
            OSError: the file cannot be read.
            PodiumError: the turn is over.
            Unavailable: the blob store could not be reached.
        """
        return await self._scope.artifacts.add(name, data, media_type)

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., object],
        *args: Any,
        result: type[R],
        kwargs: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | str | None = None,
    ) -> R: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[R]],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | str | None = None,
    ) -> R: ...

    @overload
    async def step(
        self,
        name: str,
        fn: Callable[..., R],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | str | None = None,
    ) -> R: ...

    async def step(
        self,
        name: str,
        fn: Callable[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        retry: Retry | None = None,
        timeout: timedelta | float | str | None = None,
        result: Any = None,
    ) -> Any:
        """Run a part of this turn whose result is durable: a further attempt of the message does not run it again.

        When the function has returned, its result is stored with the change of the state and the files up to then,
        before this returns. A turn that is handled again, after a crash, a failure or on another host, runs the hook
        from its beginning; at each step that has ended, state and files are put back to that step's end, and the result
        is returned. A step that was running runs again: give its calls to servers an `idempotency_key`. The turn's
        commit is still the moment at which all of it becomes true for others; a cancelled turn drops its steps.

        The steps that a hook asks for must follow from the message, the state and the results of earlier steps alone;
        see docs/guide/steps.md. Several steps may run at once, as by ``asyncio.gather``.

        Replies, results and messages of the function are repeated at a replay; emitted events are not.

        Args:
            name: of the step. Steps of one name are told apart by their order.
            fn: async, or a function that does not block for long.
            args: its arguments, JSON values or pydantic models; a further attempt must give the same.
            kwargs: its keyword arguments, as a dict: keywords of this call are options of the step, never arguments of
                the function.
            retry: how often the function is tried, and when; by default once.
            timeout: of each try: seconds, a ``timedelta``, or a text such as ``"30s"``. A function that blocks, or that
                has handed its work to a thread, is not stopped by it.
            result: the type of the result, which pydantic knows; by default the annotation of the function, if it is,
                or has, a pydantic model.

        Returns:
            the function's result, of its type; without one as plain JSON: tuples have become lists.

        Raises:
            InvalidValue: JSON cannot represent an argument or the result.
            TimeoutError: the last try took longer than the timeout; the step did not end.
            ProgramChanged: an earlier attempt of the message ended other steps, or with other arguments; the turn
                pauses, and a person decides.
            PodiumError: the hook handles no message, its turn is over, or this is called inside of a step.
            Exception: what the function raised; the step did not end, and runs again in a further attempt.
        """
        return await self._scope.steps.step(name, fn, args, kwargs, retry, timeout, result)

    @overload
    async def run(
        self,
        argv: Sequence[str | PathLike[str]],
        *,
        on: Literal["workspace"] = ...,
        step: bool = ...,
        on_output: OnOutput | None = ...,
        **options: Unpack[CommandOptions],
    ) -> Ran: ...

    @overload
    async def run(
        self,
        argv: Sequence[str | PathLike[str]],
        *,
        on: Literal["fork"],
        step: bool = ...,
        on_output: OnOutput | None = ...,
        **options: Unpack[CommandOptions],
    ) -> Tried: ...

    async def run(
        self,
        argv: Sequence[str | PathLike[str]],
        *,
        on: Place = "workspace",
        step: bool = True,
        on_output: OnOutput | None = None,
        **options: Unpack[CommandOptions],
    ) -> Ran:
        """Run a command in a sandbox, in the workspace, and wait for its end: ``await ctx.run(["pytest", "-q"])``.

        It writes to the workspace and to a temporary directory of its own (``$TMPDIR``), reads besides what is declared
        and the programs of the system, has the environment that is declared, and no network by default; the class
        declares that by `BaseAgent.sandbox`. It runs on the strongest rung that works here, and never on a weaker one
        than asked. What it has left running is ended with it. See docs/guide/commands.md.

        It is a step, so that a command which has ended does not run again in a further attempt of the message. Inside
        of a step it is a part of that one. Its output is sent to the client as it comes, by events, and is in the
        record. A failure of the command is no exception: look at ``ok``. Cancelling the call kills the command.

        With ``on="fork"`` it runs on a fork of the workspace as it is now, without network and in a sandbox in any
        case, and the workspace stays as it is. ``await tried.keep()`` makes the files of the fork those of the
        workspace, without a second run; what is not kept in the turn is dropped.

        Args:
            argv: a program, found by the ``PATH`` of its environment, and its arguments. There is no shell.
            on: ``"workspace"`` or ``"fork"``.
            step: whether it is a step. Hooks that handle no message have none.
            on_output: gets the output in place of the client.
            options: `podium.agent.commands.CommandOptions`, such as ``cwd="src"``, ``timeout="30s"``.

        Returns:
            how it ended; with ``on="fork"`` a `podium.agent.commands.Tried`, which has what it changed, too.

        Raises:
            SandboxRefused: no rung here keeps the policy, or a path of it is not there. Nothing was run. If the hook
                does not handle it, the message is parked without further attempts.
            CommandNotStarted: there is no such program, or the sandbox does not let it be read.
            InvalidInput: an argument cannot be used.
            ProgramChanged, PodiumError: as for `step`.
        """
        from podium.agent.commands import Command  # noqa: PLC0415  for agents that run commands only

        command = Command(argv=argv, on=on, **options)
        return await self._scope.commands.run(command, on_output, step=step)

    @overload
    async def decide(
        self, schema: type[R], *, reason: str, timeout: timedelta | float | str | None = None, default: D = ...
    ) -> R | D: ...

    @overload
    async def decide(
        self,
        schema: JsonObject | bool,
        *,
        reason: str,
        timeout: timedelta | float | str | None = None,
        default: Json = ...,
    ) -> Json: ...

    async def decide(
        self,
        schema: Any,
        *,
        reason: str,
        timeout: timedelta | float | str | None = None,
        default: Any = NO_DEFAULT,
    ) -> Any:
        """Pause this turn until somebody decides: a person by ``podium resolve`` or over HTTP, or another program.

        The turn ends here without a commit, and the agent may go to sleep at once, for days. State and files are as
        after the turn before; messages to this agent wait. Once the answer is there, the hook runs again from its
        beginning, on any node: its steps are not run again, state and files are put back to what they were here, and
        this returns. So the rules of `step` hold; see docs/guide/pauses.md. Steps that run are ended before.

        Args:
            schema: of the answer: a type that pydantic knows, such as a model or ``bool``, or a JSON Schema.
            reason: what is to be decided, for who decides.
            timeout: how long it waits: seconds, a ``timedelta``, or a text such as ``"2h"``; by default for ever.
            default: what is returned if nobody decides in time.

        Returns:
            the answer, of the type; as plain JSON for a JSON Schema.

        Raises:
            DecisionExpired: nobody decided in time, and there is no default.
            DecisionInvalid: the schema cannot be used, or the answer does not fit the type.
            ProgramChanged: as for `step`.
            PodiumError: the hook handles no message, as ``on_message`` does, its turn is over, or this is called inside
                of a step or while the answer of a model or of another agent is being read.
        """
        return await self._scope.pauses.decide(schema, reason, timeout, default)

    @overload
    async def promise(
        self,
        name: str,
        *,
        schema: type[R],
        reason: str = "",
        timeout: timedelta | float | str | None = None,
        default: D = ...,
        by: str | Sequence[str] = ...,
    ) -> R | D: ...

    @overload
    async def promise(
        self,
        name: str,
        *,
        schema: JsonObject | bool = True,
        reason: str = "",
        timeout: timedelta | float | str | None = None,
        default: Json = ...,
        by: str | Sequence[str] = ...,
    ) -> Json: ...

    async def promise(
        self,
        name: str,
        *,
        schema: Any = True,
        reason: str = "",
        timeout: timedelta | float | str | None = None,
        default: Any = NO_DEFAULT,
        by: str | Sequence[str] = (),
    ) -> Any:
        """Pause this turn until something outside has happened, such as a payment; otherwise as `decide`.

        Another program resolves or rejects the promise, once, by the run's id (`message_id`) and its name: over HTTP,
        by a client, by ``podium resolve``. It must be waited for then. Another agent does by `resolve` and `reject`.

        Args:
            name: up to 100 letters, digits and ``. _ -``, after a letter.
            schema: of the value: a type that pydantic knows, or a JSON Schema; any JSON by default.
            reason: what it is, for people who look at what waits.
            timeout: how long it waits, as of `decide`.
            default: what is returned if nobody resolves it in time.
            by: the agents of this tenant that may resolve or reject it, ``type/key``, besides persons and programs; by
                default none.

        Returns:
            the value, of the type; as plain JSON for a JSON Schema.

        Raises:
            PromiseRejected: it was rejected; the message says why.
            DecisionExpired: it was not resolved in time, and there is no default.
            InvalidInput: the name, or an address, cannot be used.
            DecisionInvalid, ProgramChanged, PodiumError: as for `decide`.
        """
        agents = [self._receiver(agent, "promise") for agent in ([by] if isinstance(by, str) else by)]
        return await self._scope.pauses.promise(name, schema, reason, timeout, default, agents)

    async def resolve(self, agent: str, run_id: str, promise: str, value: object = None) -> None:
        """Resolve a promise of another agent, as part of this turn. The promise must name this agent: ``by=``.

        It is delivered after the turn is committed, once, and not at all if the turn fails. One that comes before the
        run waits for it is kept until then, as is a value that does not fit: `podium why` of the other agent shows it.
        It is dropped when the run ends.

        Args:
            agent: whose promise it is, ``type/key``; the tenant is this agent's.
            run_id: of the run that waits, its `message_id`.
            promise: the name of the promise.
            value: JSON that fits the schema of the promise.

        Raises:
            InvalidAddress, UnknownAgentType: as for `tell`.
            InvalidInput: an argument cannot be used.
            PodiumError: the turn is over, or a step runs.
        """
        self._scope.outbox.answer(self._receiver(agent, "resolve"), run_id, promise, sent_json(value, "resolve"))

    async def reject(self, agent: str, run_id: str, promise: str, reason: str) -> None:
        """Reject a promise of another agent, as part of this turn; otherwise as `resolve`.

        Args:
            reason: why, up to 2,000 characters; the other agent gets it with `podium.PromiseRejected`.
        """
        if not isinstance(reason, str):
            raise WrongType(f"reject takes a reason, a text, not {type(reason).__name__}")
        self._scope.outbox.answer(self._receiver(agent, "reject"), run_id, promise, None, reason)

    async def sleep(self, duration: timedelta | float | str) -> None:
        """Pause this turn for a time, without a process; otherwise as `decide`.

        Args:
            duration: seconds, a ``timedelta``, or a text such as ``"2h"``; at most five years.

        Raises:
            InvalidInput: the duration cannot be used.
            ProgramChanged, PodiumError: as for `decide`.
        """
        await self._scope.pauses.sleep(duration)

    def llm(
        self,
        profile: str,
        *,
        max_output_tokens: int | None = None,
        qos: QualityOfService | None = None,
        conversation: str | None = None,
    ) -> AgentModel:
        """Return the model of a profile of the project (``[models.NAME]`` of ``podium.toml``).

        Its ``stream`` asks it, and is a step: see `podium.agent.llm.AgentModel`. The call is made by the model gateway
        of the home, which has the keys, and records it. Nothing is called before the first chunk is asked for.

        Args:
            profile: its name, such as ``code.fast``.
            max_output_tokens: the most tokens of an answer; the profile's limit, if that is less.
            qos: how soon the answer is needed, and whether a fallback may give it; see `podium.models.quality`.
            conversation: a name under which the record has its calls, so that `podium.agent.llm.AgentModel.said`
                returns in later turns what was said.
        """
        from podium.agent.llm import AgentModel  # noqa: PLC0415  for agents that call models only

        return AgentModel(self._scope.models, profile, max_output_tokens, qos, conversation)

    def tools(self, router: ToolRouter) -> AgentTools:
        """Return the tools of a router, as this turn calls them: each call is a step.

        See `podium.agent.tools.AgentTools`, and docs/guide/tools.md.
        """
        from podium.agent.tools import AgentTools  # noqa: PLC0415  for agents that call tools only

        return AgentTools(self._scope.tools.of(self), router)

    def idempotency_key(self, name: str) -> str:
        """Return an idempotency key for an external call: the same at each attempt of this message.

        Inside of a step, and of a tool, it is the step's or the call's own.

        Args:
            name: distinguishes several calls of one turn, or of one step.
        """
        return f"{self.agent_id}:{self.message_id or f'turn-{self.turn}'}:{self._scope.steps.key_prefix}{name}"

    async def history(self, path: str) -> Sequence[Iteration]:
        """Return the iterations of a path of the workspace, oldest first, in any presentation.

        Raises:
            NotFound: the path never existed.
        """
        return await self._scope.files.of(path)

    async def at(self, path: str, iteration: int) -> BinaryIO:
        """Open a path of the workspace at an iteration.

        Raises:
            NotFound: no such path or iteration, or it is a deletion.
        """
        return await self._scope.files.at(path, iteration)


def _seconds(timeout: object) -> float | None:
    """Return the timeout of a question, after checking its type."""
    if not isinstance(timeout, int | float | None):
        raise WrongType(f"ask takes a timeout in seconds, not {type(timeout).__name__}")
    return timeout
