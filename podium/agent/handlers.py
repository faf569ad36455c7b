"""`handler`: methods of an agent that take typed messages.

A message names its handler, and has the handler's argument::

    {"handler": "search", "input": {"text": "cats"}}

At run time the decorator marks a method and leaves it as it is. For type checkers it makes a `Handler`, which other
agents and clients call by the message alone. What a class declares is read in :mod:`podium.agent.handler_specs`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, overload

from podium.agent.retry import Retry
from podium.errors import InvalidMessage, NotAnAgent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import FrameType

    from podium.agent.answer import AnswerPart


__all__ = [
    "HANDLER",
    "INPUT",
    "Call",
    "Handler",
    "WaitingCall",
    "check_way",
    "handler",
    "is_handler",
    "is_read_only",
    "retry_of",
    "takes_dicts",
    "undefined",
]

HANDLER: Final = "handler"
"""The key of a message that names its handler."""
INPUT: Final = "input"
"""The key of a message that has the argument of its handler."""
_MARK: Final = "__podium_handler__"
_RETRY: Final = "__podium_retry__"
_READ_ONLY: Final = "__podium_read_only__"
_UNDEFINED: Final = "__podium_undefined__"

Q_contra = TypeVar("Q_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
Q = TypeVar("Q")
R = TypeVar("R")
M = TypeVar("M")


class Call(Protocol[Q_contra, R_co]):
    """A handler of an agent: one that is asked gets the message alone, the agent's own code passes its context."""

    @overload
    def __call__(self, message: Q_contra, /) -> Coroutine[Any, Any, R_co]: ...

    @overload
    def __call__(self, ctx: Any, message: Q_contra, /) -> Coroutine[Any, Any, R_co]: ...

    def stream(self, message: Q_contra, /) -> AsyncGenerator[AnswerPart[R_co], None]:
        """Ask, and yield the parts of the answer while the other agent works; see `podium.agent.asking.Asking`."""
        ...


class WaitingCall(Protocol[Q_contra, R_co]):
    """A handler as a client without an event loop calls it."""

    def __call__(self, message: Q_contra, /) -> R_co:
        """Send the message, and wait for the result."""
        ...


class Handler(Protocol[Q_contra, R_co]):
    """A method that `handler` decorates, for type checkers."""

    @overload
    def __get__(self, instance: None, owner: type[object], /) -> WaitingCall[Q_contra, R_co]: ...

    @overload
    def __get__(self, instance: object, owner: type[object], /) -> Call[Q_contra, R_co]: ...


class Marks(Protocol):
    """The decorator that ``handler(...)`` returns."""

    def __call__(self, method: Callable[[Any, Any, Q], Coroutine[Any, Any, R]], /) -> Handler[Q, R]:
        """Make a method a handler."""
        ...


@overload
def handler(method: Callable[[Any, Any, Q], Coroutine[Any, Any, R]], /) -> Handler[Q, R]: ...


@overload
def handler(*, retry: Retry | None = ..., read_only: bool = ...) -> Marks: ...


def handler(method: Any = None, /, *, retry: Retry | None = None, read_only: bool = False) -> Any:
    """Make a method the handler of the messages that name it.

    The method takes the context and one argument, whose annotation is a pydantic model, or a union of models with a
    discriminator. What it returns is the result of the message, as by `AgentContext.reply`; its annotation may be any
    type that pydantic serializes. It runs as ``on_message`` does: as a turn, in the order of the inbox, with the same
    time limit.

    Args:
        retry: how often its messages are attempted, and when; by default as the class says.
        read_only: it runs beside the turns instead, at once, also while a turn runs or is paused, with the state of the
            last commit. It changes and sends nothing: that raises `podium.ReadOnly`.

    Raises:
        NotAnAgent: the class has a handler of that name already, or ``retry`` is no policy, or is that of a read-only
            handler, which is not attempted again.

    Example::

        class Searcher(BaseAgent):
            @handler
            async def search(self, ctx, query: Query) -> Hits:
                return Hits(...)
    """
    if method is None:
        return lambda decorated: _marked(decorated, inspect.currentframe(), retry, read_only=read_only)
    return _marked(method, inspect.currentframe(), retry, read_only=read_only)


def _marked(method: Any, frame: FrameType | None, retry: object, *, read_only: bool) -> Any:
    """Mark a method as a handler; the frame is that of the decorator, which a class's body calls."""
    body = frame.f_back.f_locals if frame is not None and frame.f_back is not None else {}
    place = f"{method.__code__.co_filename}:{method.__code__.co_firstlineno}" if hasattr(method, "__code__") else ""
    if is_handler(body.get(method.__name__)):
        raise NotAnAgent(f"{place}: two handlers are named {method.__name__}; rename one of them")
    if not isinstance(retry, Retry | None):
        raise NotAnAgent(f"{place}: retry is {retry!r}; give a Retry, such as Retry(attempts=5)")
    if retry is not None and read_only:
        raise NotAnAgent(f"{place}: a read-only handler is not attempted again: leave out retry, or read_only")
    setattr(method, _MARK, True)
    setattr(method, _RETRY, retry)
    setattr(method, _READ_ONLY, read_only)
    return method


def retry_of(method: object) -> Retry | None:
    """Return the policy of a handler; ``None`` if it is that of its class."""
    found: Retry | None = getattr(method, _RETRY, None)
    return found


def undefined(method: M) -> M:
    """Mark a method of the base class as one that a class may leave out."""
    setattr(method, _UNDEFINED, True)
    return method


def takes_dicts(cls: type[Any]) -> bool:
    """Return whether an agent class handles messages that name no handler."""
    return not getattr(cls.on_message, _UNDEFINED, False)


def is_handler(value: object) -> bool:
    """Return whether a value is a method that `handler` marked."""
    return getattr(value, _MARK, False) is True


def is_read_only(value: object) -> bool:
    """Return whether a handler runs beside the turns."""
    return getattr(value, _READ_ONLY, False) is True


def check_way(name: str, *, message_is_read: bool, handler_reads: bool) -> None:
    """Check that a message comes on the way of its handler: into the inbox, or beside it to one that is read-only.

    Raises:
        InvalidMessage: it does not.
    """
    if handler_reads and not message_is_read:
        raise InvalidMessage(f"{name} is read-only: it is read, and gets no messages", f"message.{HANDLER}")
    if message_is_read and not handler_reads:
        raise InvalidMessage(f"{name} is not read-only: send it a message", f"message.{HANDLER}")
