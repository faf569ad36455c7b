"""`ModelAgent`: an agent that answers messages with a model, and calls tools for it.

A loop over `AgentContext.llm` and `AgentContext.tools`, and nothing that an agent could not write itself: each call of
the model and of a tool is a step, so a further attempt makes none of them again. The conversation is in the record of
the turns, not in the state: `podium.agent.llm.AgentModel.said` returns it. Each stage is a method to override.
"""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import TypeAdapter, ValidationError

from podium.agent.base import BaseAgent
from podium.errors import AnswerInvalid
from podium.models.collecting import Answered, Collector
from podium.models.context import ContextWindow
from podium.models.port import LLMMessage, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chronicle.canonical import JsonObject
    from podium.agent.context import AgentContext
    from podium.agent.llm import AgentModel
    from podium.models.port import ToolCall
    from podium.tools.result import ToolResult
    from podium.tools.router import ToolRouter

__all__ = ["ModelAgent"]

_CONVERSATION: Final = "main"
_AS_JSON: Final = "End with an answer that is JSON and nothing else, and fits this JSON Schema:\n"


class ModelAgent(BaseAgent):
    """An agent that answers messages with a model, and calls tools for it.

    Example::

        class Assistant(ModelAgent):
            model = "chat"
            instructions = "You are a friendly assistant."
            router = ToolRouter()

            @tool(router=router, mode="read")
            async def weather(city: str) -> str:
                ...
    """

    model: ClassVar[str] = "chat"
    """The profile of the model, ``[models.NAME]`` of the project."""
    instructions: ClassVar[str] = ""
    """What the model is told before the conversation; see `system_prompt`."""
    router: ClassVar[ToolRouter | None] = None
    """The tools that the model may call."""
    window: ClassVar[ContextWindow] = ContextWindow()
    """How much of a long conversation is sent."""
    max_calls: ClassVar[int] = 25
    """Calls of the model while one message is handled; see `on_max_calls`."""
    result_type: ClassVar[Any] = None
    """The type of the result, such as a pydantic model. Without one the model's text is the reply; with one no text is
    streamed, and the result is the answer's ``data``."""

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        """Ask the model, call the tools that it asks for, and ask it again with their results, until it is done."""
        messages = await self.build_messages(ctx, message)
        asked_again = False
        for _ in range(self.max_calls):
            answered, messages = await self.call_model(ctx, messages)
            calls = answered.message.tool_calls
            results = await self.run_tools(ctx, calls) if calls else []
            messages += [
                LLMMessage("tool", result.message, tool_call_id=call.id)
                for call, result in zip(calls, results, strict=True)
            ]
            if not self.is_done(answered, results):
                continue
            try:
                return await self.finish(ctx, answered)
            except AnswerInvalid as error:
                if asked_again:
                    raise
                asked_again = True
                messages.append(LLMMessage("user", f"{error}\nAnswer again, with JSON alone that fits."))
        return await self.on_max_calls(ctx)

    # -- the stages ------------------------------------------------------------------------------------------------

    async def system_prompt(self, ctx: AgentContext[Any]) -> str:  # noqa: ARG002  for those that override it
        """Return what the model is told before the conversation: `instructions`, and how a result is to be written.

        An attempt of the message must return the same as the one before. A provider's cache is of use while it stays
        the same from turn to turn.
        """
        parts = [self.instructions, "" if self.result_type is None else f"{_AS_JSON}{self._schema()}"]
        return "\n\n".join(part for part in parts if part)

    async def build_messages(self, ctx: AgentContext[Any], message: dict[str, Any]) -> list[LLMMessage]:
        """Return what the model is sent first: the system prompt, the conversation so far, and the message.

        The message is its ``text``; a message without one is sent as JSON.
        """
        prompt, text = await self.system_prompt(ctx), message.get("text")
        asked = text if isinstance(text, str) else json.dumps(message, ensure_ascii=False)
        system = [LLMMessage("system", prompt)] if prompt else []
        return [*system, *await self._model(ctx).said(), LLMMessage("user", asked)]

    async def call_model(self, ctx: AgentContext[Any], messages: list[LLMMessage]) -> tuple[Answered, list[LLMMessage]]:
        """Ask the model, and stream its text to the client, and what it thinks as events ``reasoning``.

        Returns:
            the answer, and the conversation to go on with, the answer included.

        Raises:
            ModelError: the call failed.
            ContextTooLarge: the conversation is above the hard cap of `window`.
        """
        model = self._model(ctx)
        told = _Told(ctx, model, has_text=self.result_type is None)
        tools = None if self.router is None else self.router.definitions
        return await self.window.answer(told, messages, tools=tools, summariser=ctx.llm(self.model))

    async def run_tools(self, ctx: AgentContext[Any], calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Call the tools that an answer asks for, and return their results in the order of the calls.

        The model gets the text of each: what a tool returned, why it failed, or why it was refused.
        """
        from podium.tools.router import ToolRouter  # noqa: PLC0415  it imports what formats logs

        return await ctx.tools(self.router or ToolRouter()).dispatch_all(calls)

    def is_done(self, answered: Answered, results: Sequence[ToolResult]) -> bool:
        """Return whether no further call is needed: no tool was called, or the result of one is the end."""
        return not answered.message.tool_calls or any(result.terminal for result in results)

    async def finish(self, ctx: AgentContext[Any], answered: Answered) -> None:
        """End with the last answer: with a `result_type`, set the result.

        Raises:
            AnswerInvalid: the answer does not fit. The model is asked once more, with the error.
        """
        if self.result_type is None:
            return
        adapter = TypeAdapter(self.result_type)
        try:
            result = adapter.validate_json(_bare(answered.message.text))
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors())
            raise AnswerInvalid(f"the answer does not fit the type of the result: {wrong}") from None
        ctx.reply(adapter.dump_python(result, mode="json"))

    async def on_max_calls(self, ctx: AgentContext[Any]) -> None:
        """End when the model is not done after `max_calls` calls: tell the client. The next message goes on from there.

        Raises:
            AnswerInvalid: there is no result of the `result_type`.
        """
        text = f"Stopped after {self.max_calls} calls of the model, before it was done."
        if self.result_type is not None:
            raise AnswerInvalid(text)
        reply = await ctx.send_message(text)
        await reply.finish()

    def _model(self, ctx: AgentContext[Any]) -> AgentModel:
        return ctx.llm(self.model, conversation=_CONVERSATION)

    def _schema(self) -> str:
        return json.dumps(TypeAdapter(self.result_type).json_schema(), ensure_ascii=False)


class _Told:
    """A model whose answers the client gets while they are written. It is a `podium.models.context.AnsweringModel`."""

    def __init__(self, ctx: AgentContext[Any], model: AgentModel, *, has_text: bool) -> None:
        self._ctx = ctx
        self._model = model
        self._has_text = has_text

    async def answer(self, messages: Sequence[LLMMessage], *, tools: Iterable[JsonObject] | None = None) -> Answered:
        """Ask the model; see `AgentModel.answer`."""
        said, reply = Collector(), None
        async with aclosing(self._model.stream(messages, tools=tools)) as chunks:
            async for chunk in chunks:
                said.add(chunk)
                if isinstance(chunk, TextDelta) and self._has_text:
                    reply = reply or await self._ctx.send_message()
                    await reply.stream_token(chunk.text)
                elif isinstance(chunk, ReasoningDelta):
                    await self._ctx.emit("reasoning", {"text": chunk.text})
        if reply is not None:
            await reply.finish()
        return said.answered()


def _bare(text: str) -> str:
    """Return an answer without the fence that models like to put around JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text.removesuffix("```").partition("\n")[2]
    return text
