"""Calls of models as steps of a turn: the chunks of an answer are the step's result."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from copy import deepcopy
from typing import TYPE_CHECKING, Literal, cast

from podium.errors import ContextMisuse, PodiumError, ProgramChanged
from podium.turn.ports import ModelCall
from podium.turn.steps.kinds import StreamStep

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from chronicle.canonical import Json, JsonObject
    from podium.events import ModelCallSummary
    from podium.models.port import LLMMessage, LLMStreamChunk
    from podium.models.quality import QualityOfService
    from podium.turn.scope.open_turn import RunningHook
    from podium.turn.steps.effects import RunningStep

__all__ = ["ModelCalls"]


class ModelCalls:
    """The calls of models of one hook."""

    def __init__(self, hook: RunningHook) -> None:
        self._hook = hook

    async def stream(
        self,
        profile: str,
        messages: Sequence[LLMMessage],
        tools: Sequence[JsonObject] | None,
        temperature: float | None,
        max_output_tokens: int | None,
        qos: QualityOfService | None,
        conversation: str | None,
    ) -> AsyncGenerator[LLMStreamChunk, None]:
        """Call a model as a step, or yield what it said in an earlier attempt; see `AgentContext.llm`."""
        from podium.models.codec import chunk_from_json, chunk_to_json  # noqa: PLC0415  for agents
        from podium.models.collecting import Collector  # noqa: PLC0415  that call models only
        from podium.models.port import Finished, TextDelta  # noqa: PLC0415
        from podium.models.quality import QualityOfService  # noqa: PLC0415

        turn = self._hook.turn
        turn.check_open()
        if turn.steps is None:
            raise ContextMisuse("this hook handles no message, so it calls no model; call it in on_message")
        if turn.env.models is None:
            raise PodiumError("nothing calls models here; a test gives them: AgentHarness(..., models=...)")
        models = turn.env.models
        call = ModelCall(
            turn.address,
            turn.number,
            profile,
            messages,
            tools,
            temperature,
            max_output_tokens,
            qos or QualityOfService(),
            turn.traceparent,
        )

        async def parts(_: RunningStep) -> AsyncGenerator[Json, None]:  # it has no span: the call has one
            async with aclosing(models.stream(call)) as chunks:
                async for chunk in chunks:
                    yield chunk.text if isinstance(chunk, TextDelta) else chunk_to_json(chunk)

        def described(digest: str, answer: Sequence[Json]) -> ModelCallSummary:
            return _described(profile, digest, answer)

        asked = turn.calls.asked(profile, messages, tools, temperature, max_output_tokens)
        step = StreamStep(f"llm {profile}", parts, asked.arguments, _is_last, described)
        said = Collector()
        await turn.calls.open()
        try:
            async with aclosing(turn.steps.stream(step, self._hook.step_prefix)) as recorded:
                async for part in recorded:
                    chunk = TextDelta(part) if isinstance(part, str) else chunk_from_json(deepcopy(part))
                    said.add(chunk)
                    if isinstance(chunk, Finished):
                        turn.calls.record(self._hook.record, asked, "done", said.answered(), conversation)
                    # The agent may change what it gets; the step and the answer keep theirs.
                    yield chunk if isinstance(part, str) else chunk_from_json(deepcopy(part))
        except BaseException as error:
            if not turn.over and said.answered().finished is None and not isinstance(error, ProgramChanged):
                turn.calls.record(self._hook.record, asked, _status(error), said.answered(), conversation, error)
            raise

    async def said(self, conversation: str | None) -> list[LLMMessage]:
        """Return what earlier turns have said in a conversation; see `AgentModel.said`."""
        from podium.models.codec import message_from_json  # noqa: PLC0415  for agents that call models only

        turn = self._hook.turn
        turn.check_open()
        if conversation is None:
            raise ContextMisuse('only a conversation with a name is read: ctx.llm(profile, conversation="main")')
        return [message_from_json(message) for message in await turn.calls.said(conversation)]


def _status(error: BaseException) -> Literal["failed", "left", "cancelled"]:
    if isinstance(error, GeneratorExit):
        return "left"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"


def _described(profile: str, digest: str, answer: Sequence[Json]) -> ModelCallSummary:
    """Return what the record says of an answer: the last tokens that the provider counted, and who answered."""
    from podium.models.codec import chunk_from_json  # noqa: PLC0415
    from podium.models.port import Finished, Usage  # noqa: PLC0415

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
