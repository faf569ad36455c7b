"""Running hooks under a deadline: each way of failing becomes `AttemptFailed`.

A hook may raise anything, ``SystemExit`` and ``KeyboardInterrupt`` included, may hang, and its message may be
cancelled. The activation gets `AttemptFailed` in each case and rolls the attempt back.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.error_pickling import Portable
from chronicle.errors import InvalidInput
from podium.errors import AskCycle, InvalidAddress, InvalidMessage, Permanent, UnknownAgentType
from podium.state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from chronicle.clock import Clock
    from chronicle.ids import MessageId
    from chronicle.journal.records import Draft
    from podium.events import ErrorInfo
    from podium.turn.steps.changes import Misfit
    from podium.turn.steps.pausing import Pause

__all__ = ["AttemptFailed", "AttemptPaused", "HookRunner", "describe", "is_permanent", "leaves_of"]

_MAX_ERROR_TEXT: Final = 2000
"""Characters of an exception's text that are recorded; the agent's log has the rest."""

_PERMANENT: Final = (Permanent, InvalidInput, StateError, InvalidAddress, InvalidMessage, UnknownAgentType, AskCycle)

_log = structlog.stdlib.get_logger("podium.turn.hooks.hook_runner")


class AttemptFailed(Portable):
    """A hook failed; the caller rolls back what it did.

    Attributes:
        error: what is recorded and shown.
        cancelled: whether the message was cancelled, by its sender or by preemption.
        said: the message's event and its replies so far.
        interrupted: whether the activation had to end; that counts no attempt of the message.
        permanent: whether no further attempt can succeed (`is_permanent`).
        hook: the name of the hook; ``None`` if unknown.
        raised: what the hook itself raised; ``None`` if it failed otherwise, as by its time limit or at the commit.
        misfit: why the recorded steps of the message do not fit; ``None`` if they do.
        given_up: whether a person who was asked about the steps has given the turn up; it is cancelled then.
    """

    def __init__(
        self,
        error: ErrorInfo,
        *,
        cancelled: bool = False,
        interrupted: bool = False,
        permanent: bool = False,
        hook: str | None = None,
    ) -> None:
        super().__init__(error["message"])
        self.error = error
        self.cancelled = cancelled
        self.interrupted = interrupted
        self.permanent = permanent
        self.said: Sequence[Draft] = ()
        self.hook = hook
        self.raised: BaseException | None = None
        self.misfit: Misfit | None = None
        self.given_up = False


class AttemptPaused(Portable):
    """A hook was stopped because its turn pauses (`HookRunner.pause`).

    Attributes:
        pause: where; set by the runner of the turn.
    """

    pause: Pause


@dataclass(slots=True)
class _Call:
    """A running hook."""

    message_id: MessageId | None
    """The message on whose behalf it runs."""
    scope: asyncio.Timeout
    limit_s: float
    deadline_s: float
    """By the clock's ``monotonic_s``."""
    shortened: bool = False
    """Whether the deadline was moved before its limit."""

    def end_by(self, now_s: float) -> None:
        """Move the deadline to now, unless it is over already."""
        self.shortened = self.shortened or now_s < self.deadline_s
        self.deadline_s = min(self.deadline_s, now_s)


class HookRunner:
    """Runs hooks, one at a time, under deadlines.

    Args:
        name: of the agent, for the log.
        clock: of `deadline_s`.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._call: _Call | None = None
        self._cancelled: set[str] = set()
        self._interrupted = False
        self._paused = False

    @property
    def deadline_s(self) -> float | None:
        """The running hook's deadline, by the clock's ``monotonic_s``; ``None`` when none runs."""
        call = self._call
        return call.deadline_s if call is not None else None

    @property
    def deadline_reason(self) -> str:
        """The reason of the running hook's deadline, in a few words."""
        call = self._call
        return "it was cancelled" if call is None or call.shortened else f"its limit of {call.limit_s:g} s"

    async def call(self, hook: Callable[[], Awaitable[Any]], limit_s: float, message_id: MessageId | None) -> Any:
        """Await a hook and return its answer.

        Args:
            limit_s: its time limit, in seconds.
            message_id: the message on whose behalf it runs; cancelling that message stops it.

        Raises:
            AttemptFailed: it raised, exceeded its time limit, or its message was cancelled.
            AttemptPaused: it was stopped by `pause`, whatever it did then.
        """
        scope = asyncio.timeout(limit_s)
        self._call = _Call(message_id, scope, limit_s, self._clock.monotonic_s() + limit_s)
        try:
            async with scope:
                if message_id in self._cancelled:
                    self.expire()
                answer = await hook()
                if self._paused:  # it has caught its cancellation
                    raise AttemptPaused("the turn pauses")
                return answer
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            if self._paused:
                raise AttemptPaused("the turn pauses") from error
            raise AttemptFailed({"type": "CancelledError", "message": "a task it awaited was cancelled"}) from error
        except GeneratorExit:  # its event loop was closed
            raise
        except BaseException as error:  # some of these would end the event loop or the activation
            if message_id is not None and message_id in self._cancelled:
                raise AttemptFailed({"type": "Cancelled", "message": "it was cancelled"}, cancelled=True) from error
            if self._paused:
                raise AttemptPaused("the turn pauses") from error
            if self._interrupted:
                message = "its service or its lease ended before the turn did; the message waits"
                raise AttemptFailed({"type": "Interrupted", "message": message}, interrupted=True) from error
            if isinstance(error, TimeoutError) and scope.expired():
                message = f"it took longer than its limit of {limit_s:g} s"
                raise AttemptFailed({"type": "TurnTimeout", "message": message}) from error
            _log.info("hook_raised", agent_id=self._name, exc_info=error)
            failed = AttemptFailed(describe(error), permanent=is_permanent(error))
            failed.raised = error
            raise failed from error
        finally:
            self._call = None
            self._interrupted = self._paused = False

    def pause(self) -> None:
        """Stop the running hook, if there is one, because its turn pauses."""
        self._paused = self._call is not None
        self.expire()

    def interrupt(self) -> None:
        """Stop the hook that handles a message, if there is one, because the activation must end."""
        if self._call is not None and self._call.message_id is not None:
            self._interrupted = True
            self.expire()

    @property
    def message_id(self) -> MessageId | None:
        """The message on whose behalf a hook runs; ``None`` when none runs, or for no message."""
        call = self._call
        return call.message_id if call is not None else None

    def expire(self) -> None:
        """Stop the running hook, if there is one, as at its deadline."""
        call = self._call
        if call is not None and not call.scope.expired():
            call.end_by(self._clock.monotonic_s())
            call.scope.reschedule(asyncio.get_running_loop().time())

    def cancel(self, message_id: str) -> None:
        """Stop the hook that runs for a message; further hooks for it fail at once until `clear`."""
        self._cancelled.add(message_id)
        if self._call is not None and self._call.message_id == message_id:
            self.expire()

    def expire_deadline(self, message_id: str | None = None) -> None:
        """Move the deadline of a message being handled to now. The hook itself is not stopped.

        Thread-safe: while code blocks the event loop, `cancel` cannot run.

        Args:
            message_id: any message if ``None``.
        """
        call = self._call
        if call is not None and call.message_id is not None and message_id in (None, call.message_id):
            call.end_by(self._clock.monotonic_s())

    def is_cancelled(self, message_id: str) -> bool:
        """Whether a message was cancelled."""
        return message_id in self._cancelled

    def clear(self, message_id: str) -> None:
        """Discard the cancellation of a message that is settled."""
        self._cancelled.discard(message_id)


def describe(error: BaseException) -> ErrorInfo:
    """Return an exception as it is recorded and shown.

    An exception group is shown by its members: a group of one as that exception, a larger one with type and text of
    each.
    """
    single, *others = leaves_of(error)
    if not others:
        error = single
    text = str(error) if not others else "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in (single, *others))
    # File names that are not UTF-8 contain lone surrogates, which a record cannot hold.
    text = text.encode("utf-8", "backslashreplace").decode() or "no message"
    if len(text) > _MAX_ERROR_TEXT:
        text = text[:_MAX_ERROR_TEXT] + "…"
    return {"type": type(error).__name__, "message": text}


def is_permanent(error: BaseException) -> bool:
    """Return whether an exception, or one of a group, tells that no further attempt can succeed.

    Besides `Permanent` these are the errors of what agents' code asks for: repeated, it asks for the same.
    """
    return any(isinstance(leaf, _PERMANENT) for leaf in leaves_of(error))


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, nested groups flattened; the exception itself if it is no group."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error
