"""Calls of another agent's handlers, as methods of an object; `AgentContext.ask` and the clients return one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podium.agent.handler_specs import handlers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from podium.agent.handler_specs import HandlerSpec

__all__ = ["RemoteHandlers"]


class RemoteHandlers:
    """The handlers of an agent of a class. Each is called with its argument, and returns what ``call`` does.

    Args:
        cls: the agent's class.
        call: sends an argument to a handler.
    """

    def __init__(self, cls: type[Any], call: Callable[[HandlerSpec, object], Any]) -> None:
        self._cls = cls
        self._call = call

    def __getattr__(self, name: str) -> Callable[[object], Any]:
        handlers = handlers_of(self._cls)
        if name not in handlers:
            known = f"its handlers are {', '.join(handlers)}" if handlers else "it has none"
            raise AttributeError(f"{self._cls.__name__} has no handler {name}: {known}", name=name, obj=self)
        return lambda argument, /: self._call(handlers[name], argument)
