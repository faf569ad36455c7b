"""Calls of models as steps of a turn: the chunks of an answer are the step's result."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from podium.models.codec import chunk_from_json, chunk_to_json, message_to_json
from podium.models.port import Finished, TextDelta, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from chronicle.canonical import Json
    from podium.events import ModelCallSummary
    from podium.models.port import LLMStreamChunk
    from podium.turn.ports import ModelCall, Models
    from podium.turn.steps.turn_steps import TurnSteps

__all__ = ["call_model"]


async def call_model(
    steps: TurnSteps, models: Models, call: ModelCall, prefix: str
) -> AsyncGenerator[LLMStreamChunk, None]:
    """Call a model as a step, or yield what it said in an earlier attempt; see `AgentContext.llm`.

    Args:
        prefix: of the step's key.
    """

    async def parts() -> AsyncGenerator[Json, None]:
        async with aclosing(models.stream(call)) as chunks:
            async for chunk in chunks:
                yield chunk.text if isinstance(chunk, TextDelta) else chunk_to_json(chunk)

    arguments = [
        call.profile,
        [message_to_json(message) for message in call.messages],
        call.tools,
        call.temperature,
        call.max_output_tokens,
    ]

    def described(digest: str, answer: Sequence[Json]) -> ModelCallSummary:
        return _described(call.profile, digest, answer)

    streamed = steps.stream(f"llm {call.profile}", parts, arguments, _is_last, prefix, described)
    async with aclosing(streamed) as recorded:
        async for part in recorded:
            yield TextDelta(part) if isinstance(part, str) else chunk_from_json(part)


def _described(profile: str, digest: str, answer: Sequence[Json]) -> ModelCallSummary:
    """Return what the record says of an answer: the last tokens that the provider counted, and who answered."""
    found: ModelCallSummary = {"profile": profile, "digest": digest}
    for part in answer:
        chunk = chunk_from_json(part) if isinstance(part, dict) else None
        if isinstance(chunk, Usage):
            found["input_tokens"], found["output_tokens"] = chunk.input_tokens, chunk.output_tokens
            found["cached_tokens"] = chunk.cached_tokens
        elif isinstance(chunk, Finished):
            found["model"] = chunk.model
            if chunk.cost is not None:
                found["cost"] = chunk.cost
    return found


def _is_last(part: Json) -> bool:
    return not isinstance(part, str) and cast("dict[str, Json]", part)["type"] == "finished"
