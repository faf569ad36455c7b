"""Calls of agents' handlers by programs that import their classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from coordinator.client.errors import BadAnswer
from podium.agent.agent_types import agent_type_of
from podium.agent.remote import RemoteHandlers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from coordinator.operations.objects import Answer
    from podium.agent.handler_specs import HandlerSpec

__all__ = ["handlers_at"]


def handlers_at(cls: type[Any], key: str, ask: Callable[[str, Any], Awaitable[Answer]]) -> RemoteHandlers:
    """Return the handlers of an agent.

    Args:
        ask: sends a message to an address, and returns the answer.
    """
    address = f"{agent_type_of(cls)}/{key}"

    async def call(spec: HandlerSpec, argument: object) -> Any:
        answer = await ask(address, spec.message(argument))
        try:
            return spec.typed_result(answer.data)
        except ValidationError as error:
            raise BadAnswer(
                f"{address} runs with another class: the result of {spec.name} does not fit: {error}",
                message_id=answer.message_id,
            ) from error

    return RemoteHandlers(cls, call)
