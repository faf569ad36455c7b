"""Calls of agents' handlers by programs that import their classes."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from coordinator.client.errors import BadAnswer
from podium.agent.agent_types import agent_type_of
from podium.agent.answer import Answer, Answered
from podium.agent.remote import RemoteHandlers
from podium.turn.answer_parts import AnswerReader, part_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from coordinator.client.run import AsyncRun
    from coordinator.operations import objects
    from podium.agent.answer import AnswerPart
    from podium.agent.handler_specs import HandlerSpec

__all__ = ["handlers_at"]


def handlers_at(
    cls: type[Any],
    key: str,
    ask: Callable[[str, Any], Awaitable[objects.Answer]],
    read: Callable[[str, Any], Awaitable[objects.ReadResult]],
    stream: Callable[[str, Any], Awaitable[AsyncRun]],
) -> RemoteHandlers:
    """Return the handlers of an agent.

    Args:
        ask: sends a message to an address, and returns the answer.
        read: sends one to a read-only handler.
        stream: sends a message, and returns its run.
    """
    address = f"{agent_type_of(cls)}/{key}"

    def typed(spec: HandlerSpec, data: Any, message_id: str | None) -> Any:
        try:
            return spec.typed_result(data)
        except ValidationError as error:
            raise BadAnswer(
                f"{address} runs with another class: the result of {spec.name} does not fit: {error}",
                message_id=message_id,
            ) from error

    async def call(spec: HandlerSpec, argument: object) -> Any:
        message = spec.message(argument)
        if spec.read_only:
            return typed(spec, (await read(address, message)).data, None)
        answer = await ask(address, message)
        return typed(spec, answer.data, answer.message_id)

    async def parts(spec: HandlerSpec, argument: object) -> AsyncGenerator[AnswerPart[Any], None]:
        reader = AnswerReader()
        async with await stream(address, spec.message(argument)) as run:
            async with aclosing(run.events()) as frames:
                async for frame in frames:
                    for part in reader.parts(frame):
                        yield part_of(part)
            found = await run.answer()
        text = "".join(reply.text for reply in found.replies)
        yield Answered(
            Answer(found.agent, found.message_id, found.turn, text, found.data),
            typed(spec, found.data, found.message_id),
        )

    return RemoteHandlers(cls, call, parts)
