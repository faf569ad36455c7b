"""Running user code under a deadline: whatever goes wrong in it becomes one kind of failure.

A hook may raise anything, ``SystemExit`` and ``KeyboardInterrupt`` among it, wait for ever or be taken back by its
sender.
The activation sees `TryFailed` in each case and gives the try up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.error_pickling import Portable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from chronicle.clock import Clock
    from chronicle.ids import MessageId
    from chronicle.journal.records import Draft
    from podium.events import ErrorInfo

__all__ = ["TryFailed", "UserCode", "describe"]

_MAX_ERROR_TEXT: Final = 2000
"""Characters of an exception's text that are recorded; what is longer belongs in the agent's log."""

_log = structlog.stdlib.get_logger("podium.turn.hook_call")


class TryFailed(Portable):
    """A hook did not go well; what it did is still to be rolled back.

    Attributes:
        error: what is recorded and shown.
        cancelled: whether the message was taken back, by its sender or for another one.
        said: the message and what it was answered until then.
        interrupted: whether it was stopped for no fault of its own; that is no attempt of its message.
        hook: the name of the hook; ``None`` if it is not known.
    """

    def __init__(
        self, error: ErrorInfo, *, cancelled: bool = False, interrupted: bool = False, hook: str | None = None
    ) -> None:
        super().__init__(error["message"])
        self.error = error
        self.cancelled = cancelled
        self.interrupted = interrupted
        self.said: Sequence[Draft] = ()
        self.hook = hook


@dataclass(slots=True)
class _Call:
    """A hook that runs."""

    message_id: MessageId | None
    """On whose behalf."""
    scope: asyncio.Timeout
    limit_s: float
    due_s: float
    """When its time is over."""
    shortened: bool = False
    """Whether that is before its limit."""

    def end_by(self, now_s: float) -> None:
        """Let its time be over now, unless it is already."""
        self.shortened = self.shortened or now_s < self.due_s
        self.due_s = min(self.due_s, now_s)


class UserCode:
    """Calls hooks, one at a time.

    Args:
        name: of the agent, for the log.
        clock: for `due_s`.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock
        self._call: _Call | None = None
        self._taken_back: set[str] = set()
        self._interrupted = False

    @property
    def due_s(self) -> float | None:
        """When the running hook's time is over, by the clock's ``monotonic_s``; ``None`` when none runs."""
        call = self._call
        return call.due_s if call is not None else None

    @property
    def due_because(self) -> str:
        """Why the running hook's time ends when `due_s` says, in a few words."""
        call = self._call
        return "it was cancelled" if call is None or call.shortened else f"its limit of {call.limit_s:g} s"

    async def call(self, hook: Callable[[], Awaitable[Any]], limit_s: float, message_id: MessageId | None) -> Any:
        """Await a hook and return its answer.

        Args:
            limit_s: seconds it may take.
            message_id: on whose behalf it runs; taking that message back stops it.

        Raises:
            TryFailed: it raised, took too long or was taken back.
        """
        scope = asyncio.timeout(limit_s)
        self._call = _Call(message_id, scope, limit_s, self._clock.monotonic_s() + limit_s)
        try:
            async with scope:
                if message_id in self._taken_back:
                    self.expire()
                return await hook()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise TryFailed({"type": "CancelledError", "message": "a task it awaited was cancelled"}) from error
        except GeneratorExit:  # its event loop is gone
            raise
        except BaseException as error:  # some of these would end the event loop or the activation
            if message_id is not None and message_id in self._taken_back:
                raise TryFailed({"type": "Cancelled", "message": "it was taken back"}, cancelled=True) from error
            if self._interrupted:
                message = "its service or its lease ended before the turn did; the message waits"
                raise TryFailed({"type": "Interrupted", "message": message}, interrupted=True) from error
            if isinstance(error, TimeoutError) and scope.expired():
                message = f"it took longer than its limit of {limit_s:g} s"
                raise TryFailed({"type": "TurnTimeout", "message": message}) from error
            _log.info("hook_raised", agent_id=self._name, exc_info=error)
            raise TryFailed(describe(error)) from error
        finally:
            self._call = None
            self._interrupted = False

    def interrupt(self) -> None:
        """Stop the hook that handles a message, if one does, for no fault of its own: the activation has to end."""
        if self._call is not None and self._call.message_id is not None:
            self._interrupted = True
            self.expire()

    @property
    def message_id(self) -> MessageId | None:
        """On behalf of which message a hook runs now; ``None`` when none runs, or for no message."""
        call = self._call
        return call.message_id if call is not None else None

    def expire(self) -> None:
        """Stop the hook that runs, if one does, as if its time were over."""
        call = self._call
        if call is not None and not call.scope.expired():
            call.end_by(self._clock.monotonic_s())
            call.scope.reschedule(asyncio.get_running_loop().time())

    def take_back(self, message_id: str) -> None:
        """Stop the hook that runs for a message, and let none run for it again until `forget`."""
        self._taken_back.add(message_id)
        if self._call is not None and self._call.message_id == message_id:
            self.expire()

    def make_due(self, message_id: str | None = None) -> None:
        """Let a message's time be over now, if it is being handled, so that `due_s` says so; it stops nothing.

        It may be called from any thread: code that blocks the event loop would not let `take_back` be called.

        Args:
            message_id: whichever is being handled if ``None``.
        """
        call = self._call
        if call is not None and call.message_id is not None and message_id in (None, call.message_id):
            call.end_by(self._clock.monotonic_s())

    def is_taken_back(self, message_id: str) -> bool:
        """Whether a message was taken back."""
        return message_id in self._taken_back

    def forget(self, message_id: str) -> None:
        """Forget a message that is settled."""
        self._taken_back.discard(message_id)


def describe(error: BaseException) -> ErrorInfo:
    """Return an exception as it is recorded and shown.

    A group, such as a task group raises, is shown as what is in it: a group of one as that exception, a larger one with
    type and text of each.
    """
    single, *others = _leaves(error)
    if not others:
        error = single
    text = str(error) if not others else "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in (single, *others))
    # Names of files that are no UTF-8 come with lone surrogates, which no record can hold.
    text = text.encode("utf-8", "backslashreplace").decode() or "no message"
    if len(text) > _MAX_ERROR_TEXT:
        text = text[:_MAX_ERROR_TEXT] + "…"
    return {"type": type(error).__name__, "message": text}


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, of groups in it as well; the exception itself if it is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
