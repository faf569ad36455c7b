"""`Asking`: a question to another agent that is awaited, or read while the answer comes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from podium.agent.answer import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from types import TracebackType

    from podium.agent.answer import AnswerPart

__all__ = ["Asking"]


class Asking(Coroutine[Any, Any, Answer]):
    """A question that is sent when it is awaited, or when the first part of its `stream` is.

    It is a coroutine, so that ``asyncio.create_task`` takes it.
    """

    def __init__(
        self, answer: Coroutine[Any, Any, Answer], parts: Callable[[], AsyncGenerator[AnswerPart[Any], None]]
    ) -> None:
        self._answer = answer
        self._parts = parts

    def stream(self) -> AsyncGenerator[AnswerPart[Any], None]:
        """Ask, and yield the parts of the answer while the other agent works; the last one is an `Answered`.

        It is a step: when the last part is there, they are recorded, and a further attempt of this turn gets the same
        ones. The texts come at the latest with the end of the other agent's turn. Otherwise as
        `podium.agent.AgentContext.ask`. A program that leaves the parts closes them, as with ``contextlib.aclosing``;
        the question stays with the other agent.
        """
        self._answer.close()
        return self._parts()

    def __await__(self) -> Generator[Any, Any, Answer]:
        return self._answer.__await__()

    def send(self, value: Any, /) -> Any:
        """See `collections.abc.Coroutine`."""
        return self._answer.send(value)

    def throw(
        self,
        kind: type[BaseException] | BaseException,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:
        """See `collections.abc.Coroutine`."""
        del value, traceback  # an exception has them
        return self._answer.throw(kind)

    def close(self) -> None:
        """See `collections.abc.Coroutine`."""
        self._answer.close()
