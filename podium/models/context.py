"""What is sent of a long conversation: old observations are masked, the oldest part is summarised, and a limit holds.

An observation is the result of a tool. `ContextWindow.sent` masks without a call, by the conversation alone, so that
each call sends the same. The conversation itself is the agent's, in its state: a summary that replaces a part of it is
taken back by a rewind, as any change of the state.

Requests stay append-only, which is what providers' caches are for: observations are masked in batches, and between two
batches or summaries each request begins with the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from podium.errors import ContextTooLarge
from podium.models.codec import message_to_json
from podium.models.errors import ModelError
from podium.models.port import LLMMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from chronicle.canonical import JsonObject
    from podium.models.collecting import Answered

__all__ = ["AnsweringModel", "ContextWindow"]

SUMMARISE: Final = (
    "Summarise the conversation above for yourself: it will be replaced by your summary. Keep what was asked, decided "
    "and found out, names, numbers and paths that are still needed, and what is still to be done. Answer with the "
    "summary only."
)
_SHORT: Final = 200
"""Characters of an observation that is not masked: what stands in its place takes half of that."""


class AnsweringModel(Protocol):
    """A model that answers as a whole, such as `AgentContext.llm` returns."""

    def answer(
        self, messages: Sequence[LLMMessage], *, tools: Iterable[JsonObject] | None = None
    ) -> Awaitable[Answered]:
        """Ask the model, and return its whole answer."""
        ...


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """How much of a conversation a model is sent. Sizes are characters of all messages, with their tool calls.

    Attributes:
        observation_window: so many of the last observations are sent whole, and fewer than twice as many: they are
            masked in batches of this size. From 1.
        soft_cap_chars: above it, the oldest part of the conversation is replaced by a summary, which costs a call.
        hard_cap_chars: above it, after a summary, the conversation is refused.
        min_tail_turns: the last turns, which no summary replaces; a turn begins with a message of the user. From 1.
    """

    observation_window: int = 10
    soft_cap_chars: int = 400_000
    hard_cap_chars: int = 600_000
    min_tail_turns: int = 4

    def __post_init__(self) -> None:
        if self.observation_window < 1 or self.min_tail_turns < 1:
            raise ValueError("observation_window and min_tail_turns are 1 or more")
        if not 0 < self.soft_cap_chars <= self.hard_cap_chars:
            raise ValueError("soft_cap_chars is more than 0, and at most hard_cap_chars")

    def sent(self, conversation: Sequence[LLMMessage]) -> list[LLMMessage]:
        """Return a conversation as it is sent: with old observations masked. All other messages are unchanged.

        A masked message says in `LLMMessage.note` why.
        """
        observations = [index for index, message in enumerate(conversation) if message.role == "tool"]
        batches = max(0, len(observations) - self.observation_window) // self.observation_window
        found = list(conversation)
        for index in observations[: batches * self.observation_window]:
            found[index] = self._masked(conversation[index])
        return found

    async def answer(
        self,
        model: AnsweringModel,
        conversation: Sequence[LLMMessage],
        *,
        tools: Iterable[JsonObject] | None = None,
        summariser: AnsweringModel | None = None,
    ) -> tuple[Answered, list[LLMMessage]]:
        """Ask a model, with as much of a conversation as fits.

        Above the soft cap, and when the provider says that the request is too long, the oldest part is summarised
        first. That is repeated above the hard cap, and as often as the provider says so, while a part is left and the
        conversation becomes shorter.

        Args:
            conversation: the last message is answered.
            summariser: the model that writes the summaries; by default the same one.

        Returns:
            the answer, and the conversation to go on with: the given one, or one that begins with a summary, and
            behind it the answer.

        Raises:
            ContextTooLarge: it is above the hard cap, and nothing is left to summarise.
            ModelError: a call failed, or a summary is empty or was cut; the conversation stays as it is. Of the kind
                ``context_overflow``: nothing is left to summarise, or the oldest part is too long itself.
        """
        tools = None if tools is None else tuple(tools)
        summariser = summariser or model
        found = list(conversation)
        if size_of(self.sent(found)) > self.soft_cap_chars:
            found = await self._compacted(summariser, found, tools) or found
        while True:
            sent = self.sent(found)
            if size_of(sent) > self.hard_cap_chars:
                if not (shorter := await self._compacted(summariser, found, tools)):
                    raise ContextTooLarge(size_of(sent), self.hard_cap_chars, self.min_tail_turns)
                found = shorter
                continue
            try:
                answered = await model.answer(sent, tools=tools)
            except ModelError as error:
                if error.kind != "context_overflow" or not (shorter := await self._compacted(summariser, found, tools)):
                    raise
            else:
                overflows = answered.finished is not None and answered.finished.reason == "context_overflow"
                if not overflows or not (shorter := await self._compacted(summariser, found, tools)):
                    return answered, [*found, answered.message]
            found = shorter

    def oldest_part(self, conversation: Sequence[LLMMessage]) -> tuple[int, int]:
        """Return the part of a conversation that a summary replaces: from where, and to before which message.

        It is behind the instructions, and ends before the last turns. Where observations in it are masked, it ends with
        the first turns that have all of those. A call of a tool and its result are never divided, as a part consists of
        whole turns. The part is empty if there is none, or only a summary.
        """
        begin = next((index for index, each in enumerate(conversation) if each.role != "system"), len(conversation))
        turns = [index for index, each in enumerate(conversation) if each.role == "user" and index >= begin]
        if len(turns) <= self.min_tail_turns:
            return begin, begin
        tail = turns[-self.min_tail_turns]
        masked = [index for index, each in enumerate(self.sent(conversation)) if each.note and each.role == "tool"]
        last = max((index for index in masked if index < tail), default=tail)
        end = min((index for index in turns if last < index <= tail), default=tail)
        is_summary = end == begin + 1 and conversation[begin].note is not None
        return begin, begin if is_summary else end

    async def _compacted(
        self, model: AnsweringModel, conversation: Sequence[LLMMessage], tools: Sequence[JsonObject] | None
    ) -> list[LLMMessage]:
        """Return the conversation with a summary of its oldest part; empty without such a part, or if it is no shorter.

        Raises:
            ModelError: the call failed, or its answer is no whole summary.
        """
        begin, end = self.oldest_part(conversation)
        if begin == end:
            return []
        asked = [*self.sent(conversation)[:end], LLMMessage("user", SUMMARISE)]
        answered = await model.answer(asked, tools=tools)
        reason = answered.finished.reason if answered.finished is not None else "cut short"
        if reason != "stop" or not answered.message.text.strip():
            raise ModelError(
                f"the model gave no whole summary: its answer has {len(answered.message.text)} characters ({reason})",
                "context_overflow" if reason == "context_overflow" else "protocol",
            )
        note = f"a summary of {end - begin} messages, {size_of(conversation[begin:end])} characters"
        summary = LLMMessage("user", f"What happened before, in your own words:\n\n{answered.message.text}", note=note)
        shorter = [*conversation[:begin], summary, *conversation[end:]]
        return shorter if size_of(shorter) < size_of(conversation) else []

    def _masked(self, message: LLMMessage) -> LLMMessage:
        size = size_of([message])
        if size < _SHORT:
            return message
        content = f"(left out: {size} characters, an older result)"
        return replace(message, content=content, note=f"older than the last {self.observation_window} observations")


def size_of(messages: Sequence[LLMMessage]) -> int:
    """Return the characters of messages: their texts, and the JSON of all else."""
    return sum(
        len(message.content)
        if isinstance(message.content, str) and not message.tool_calls
        else len(str(message_to_json(message)))
        for message in messages
    )
