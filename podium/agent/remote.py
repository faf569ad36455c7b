"""Calls of another agent's handlers, as methods of an object; `AgentContext.ask` and the clients return one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.agent.handler_specs import handlers_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from podium.agent.answer import AnswerPart
    from podium.agent.handler_specs import HandlerSpec

__all__ = ["RemoteHandlers"]


class RemoteHandler:
    """A handler of another agent. It is called with its argument."""

    def __init__(
        self,
        spec: HandlerSpec,
        call: Callable[[HandlerSpec, object], Any],
        stream: Callable[[HandlerSpec, object], AsyncGenerator[AnswerPart[Any], None]] | None,
    ) -> None:
        self._spec = spec
        self._call = call
        self._stream = stream

    def __call__(self, argument: object, /) -> Any:
        """Send the argument, and return what ``call`` does."""
        return self._call(self._spec, argument)

    def stream(self, argument: object, /) -> AsyncGenerator[AnswerPart[Any], None]:
        """Send the argument, and yield the parts of the answer."""
        if self._stream is None:
            raise AttributeError(f"{self._spec.name} has no stream here: a client needs an event loop for one")
        return self._stream(self._spec, argument)


class RemoteHandlers:
    """The handlers of an agent of a class, each a `RemoteHandler`.

    Args:
        cls: the agent's class.
        call: sends an argument to a handler.
        stream: does so, and yields the parts of the answer; ``None`` where nothing waits for parts.
    """

    def __init__(
        self,
        cls: type[Any],
        call: Callable[[HandlerSpec, object], Any],
        stream: Callable[[HandlerSpec, object], AsyncGenerator[AnswerPart[Any], None]] | None = None,
    ) -> None:
        self._cls = cls
        self._call = call
        self._stream = stream

    def __getattr__(self, name: str) -> RemoteHandler:
        handlers = handlers_of(self._cls)
        if name not in handlers:
            known = f"its handlers are {', '.join(handlers)}" if handlers else "it has none"
            raise AttributeError(f"{self._cls.__name__} has no handler {name}: {known}", name=name, obj=self)
        return RemoteHandler(handlers[name], self._call, self._stream)
