"""`AgentModel`: a model, as an agent's code uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from podium.models.collecting import collect

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from chronicle.canonical import JsonObject
    from podium.models.collecting import Answered
    from podium.models.port import LLMMessage, LLMStreamChunk
    from podium.models.quality import QualityOfService
    from podium.turn.scope.model_calls import ModelCalls

__all__ = ["AgentModel"]


class AgentModel:
    """The model of a profile, for one turn. It is a `podium.models.LLMProvider`; `AgentContext.llm` makes it."""

    def __init__(
        self,
        calls: ModelCalls,
        profile: str,
        max_output_tokens: int | None,
        qos: QualityOfService | None,
        conversation: str | None,
    ) -> None:
        self._calls = calls
        self._profile = profile
        self._max_output_tokens = max_output_tokens
        self._qos = qos
        self._conversation = conversation

    def stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Iterable[JsonObject] | None = None,
        temperature: float | None = None,
    ) -> AsyncGenerator[LLMStreamChunk, None]:
        """Ask the model, and yield what it says as it says it; the last chunk is a `Finished`.

        It is a step of the turn: when the last chunk is there, the answer is durable, and a further attempt of the
        message gets the same chunks without a call. An agent that stops reading earlier closes the iterator, as with
        ``contextlib.aclosing``: that ends the call.

        Args:
            messages: the conversation; the last one is answered.
            tools: what the model may call; see `podium.models.LLMProvider.stream`.
            temperature: of the sampling; by default the model's own.

        Raises:
            ModelError: the call failed, and its fallbacks too, as `ModelError.kind` says.
            ProgramChanged: an earlier attempt of the message asked something else.
            PodiumError: the hook handles no message, its turn is over, or this is called inside of a step.
        """
        return self._calls.stream(
            self._profile,
            tuple(messages),
            None if tools is None else tuple(tools),
            temperature,
            self._max_output_tokens,
            self._qos,
            self._conversation,
        )

    async def said(self) -> list[LLMMessage]:
        """Return the conversation so far, from the record: what turns before this one have said.

        It is what the last call of the conversation was sent, its answer, and the results of the tools that the answer
        called; without instructions (``system``). It follows rewinds and forks. Turns that were not committed are not
        in it, nor messages that were erased. A call of a tool that has no result gets one which says so.

        Raises:
            PodiumError: the conversation has no name (``ctx.llm(profile, conversation="main")``), or the turn is over.
        """
        return await self._calls.said(self._conversation)

    async def answer(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Iterable[JsonObject] | None = None,
        temperature: float | None = None,
    ) -> Answered:
        """Ask the model, and return its whole answer; otherwise as `stream`."""
        return await collect(self.stream(messages, tools=tools, temperature=temperature))
