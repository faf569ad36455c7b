"""What is sent of a long conversation: masking, summaries, limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.errors import ContextTooLarge
from podium.models import (
    Answered,
    ContextWindow,
    Finished,
    LLMMessage,
    ModelError,
    ProviderBlock,
    TextBlock,
    ToolCall,
)
from podium.models.context import size_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RULES = LLMMessage("system", "Be brief.")
THINKING = ProviderBlock("anthropic", {"type": "thinking", "signature": "c2ln"})


def turn(number: int, calls: int = 1, size: int = 300) -> list[LLMMessage]:
    """A question, calls of a tool with thinking before each and a result, and an answer."""
    said = [LLMMessage("user", f"question {number}")]
    for call in range(calls):
        name = f"call_{number}_{call}"
        said.append(LLMMessage("assistant", (THINKING, TextBlock("I look.")), (ToolCall(name, "look", {"n": call}),)))
        said.append(LLMMessage("tool", f"{name} ".ljust(size, "x"), tool_call_id=name))
    return [*said, LLMMessage("assistant", f"answer {number}")]


def conversation(turns: int, calls: int = 1, size: int = 300) -> list[LLMMessage]:
    return [RULES, *(message for number in range(turns) for message in turn(number, calls, size))]


class Model:
    """Answers, and keeps what it was asked."""

    def __init__(self, *failures: ModelError | Finished) -> None:
        self.failures = list(failures)
        self.asked: list[list[LLMMessage]] = []

    async def answer(self, messages: Sequence[LLMMessage], *, tools: Iterable[Any] | None = None) -> Answered:
        self.asked.append(list(messages))
        is_summary = messages[-1].text.startswith("Summarise")
        failure = self.failures.pop(0) if self.failures and not is_summary else None
        if isinstance(failure, ModelError):
            raise failure
        text = "the gist" if is_summary else "yes"
        return Answered(LLMMessage("assistant", text), finished=failure or Finished("stop", "m"))


# S2.51
def test_old_observations_are_masked_in_place_without_a_call() -> None:
    window = ContextWindow(observation_window=3)
    said = conversation(7)
    sent = window.sent(said)
    masked = [index for index, message in enumerate(sent) if message.note]
    assert [said[index].tool_call_id for index in masked] == ["call_0_0", "call_1_0", "call_2_0"]
    for index, (before, after) in enumerate(zip(said, sent, strict=True)):
        if index not in masked:
            assert after is before
        else:
            assert after.content == "(left out: 300 characters, an older result)"
            assert after.note == "older than the last 3 observations"
            assert replace(after, content=before.content, note=None) == before
    assert window.sent(conversation(5)) == conversation(5)  # fewer than two windows


def test_short_observations_are_sent_whole() -> None:
    said = conversation(9, size=20)
    assert ContextWindow(observation_window=1).sent(said) == said


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 4))
def test_a_request_begins_with_the_one_before_unless_a_batch_was_masked(calls: list[int], size: int) -> None:
    window = ContextWindow(observation_window=size)
    said = [RULES]
    before: list[LLMMessage] = []
    for number, count in enumerate(calls):
        for message in turn(number, count):
            said.append(message)
            sent = window.sent(said)
            masked = sum(1 for each in sent if each.note)
            assert masked % size == 0
            if masked == sum(1 for each in before if each.note):
                assert sent[: len(before)] == before
            whole = sum(1 for each in sent if each.role == "tool" and not each.note)
            assert whole < 2 * size
            assert masked == 0 or whole >= size
            before = sent


# S2.52
async def test_above_the_soft_cap_the_oldest_masked_turns_become_a_summary() -> None:
    model, window = Model(), ContextWindow(2, soft_cap_chars=2_000, hard_cap_chars=100_000, min_tail_turns=2)
    said = [*conversation(8), LLMMessage("user", "now")]
    answered, after = await window.answer(model, said)
    assert answered.message.text == "yes"
    summarised, asked = model.asked
    assert summarised[:-1] == window.sent(said)[: len(summarised) - 1]
    assert [message.text for message in asked[:2]] == [
        "Be brief.",
        "What happened before, in your own words:\n\nthe gist",
    ]
    assert asked[1].note == "a summary of 24 messages, " + f"{size_of(said[1:25])} characters"
    assert asked[2].text == "question 6"  # the first turn of which no observation was masked
    assert after[:-1] == [RULES, asked[1], *said[25:]]
    assert after[-1] == answered.message
    again, _ = await window.answer(model, [*after, LLMMessage("user", "and then")])
    assert again.message.text == "yes"
    assert len(model.asked) == 3  # below the cap: no further summary
    assert model.asked[2][: len(asked)] == asked


async def test_blocks_of_the_provider_go_back_unchanged() -> None:
    model, window = Model(), ContextWindow(1)
    await window.answer(model, [*conversation(6), LLMMessage("user", "now")])
    (asked,) = model.asked
    assert [message.blocks[0] for message in asked if message.tool_calls] == [THINKING] * 6


@pytest.mark.parametrize(
    "failure", [ModelError("too long", "context_overflow"), Finished("context_overflow", "m")], ids=["error", "answer"]
)
async def test_an_overflow_at_the_provider_starts_a_summary(failure: ModelError | Finished) -> None:
    model, window = Model(failure), ContextWindow(min_tail_turns=1)
    _, after = await window.answer(model, [*conversation(3), LLMMessage("user", "now")])
    assert len(model.asked) == 3
    assert [message.text for message in model.asked[-1]][0::2] == ["Be brief.", "now"]
    assert len(after) == 4


async def test_an_overflow_with_nothing_to_summarise_is_raised() -> None:
    model = Model(ModelError("too long", "context_overflow"))
    with pytest.raises(ModelError, match="too long"):
        await ContextWindow(min_tail_turns=4).answer(model, conversation(3))
    assert len(model.asked) == 1


async def test_summaries_end_when_nothing_but_a_summary_is_left() -> None:
    model = Model(*[ModelError("too long", "context_overflow")] * 20)
    with pytest.raises(ModelError, match="too long"):
        await ContextWindow(min_tail_turns=4).answer(model, conversation(7))
    assert len(model.asked) == 3  # as it is, the summary, with the summary


async def test_a_tail_above_the_soft_cap_has_no_summary_summarised() -> None:
    model, window = Model(), ContextWindow(soft_cap_chars=1_000, hard_cap_chars=9_000, min_tail_turns=2)
    said = [*conversation(3, size=700), LLMMessage("user", "now")]
    for _ in range(5):
        _, said = await window.answer(model, said)
    assert sum(1 for asked in model.asked if asked[-1].text.startswith("Summarise")) == 1


@pytest.mark.parametrize(
    ("text", "reason", "kind"),
    [("  ", "stop", "protocol"), ("half a", "length", "protocol"), ("", "context_overflow", "context_overflow")],
)
async def test_no_conversation_is_replaced_by_half_a_summary(text: str, reason: Any, kind: str) -> None:
    class Cut(Model):
        async def answer(self, messages: Sequence[LLMMessage], *, tools: Iterable[Any] | None = None) -> Answered:
            return Answered(LLMMessage("assistant", text), finished=Finished(reason, "m"))

    window = ContextWindow(soft_cap_chars=500, hard_cap_chars=9_000, min_tail_turns=1)
    with pytest.raises(ModelError, match="no whole summary") as raised:
        await window.answer(Cut(), conversation(6))
    assert raised.value.kind == kind


async def test_above_the_hard_cap_summaries_go_on_while_a_part_is_left() -> None:
    model = Model()
    window = ContextWindow(2, soft_cap_chars=5_000, hard_cap_chars=8_000, min_tail_turns=2)
    plain = [LLMMessage("user", f"{number} ".ljust(1_000, "z")) for number in range(12)]
    said = [*conversation(1, calls=4), *plain]
    _, after = await window.answer(model, said)  # the first summary is of the turn with the masked observations
    assert [asked[-1].text[:9] for asked in model.asked] == ["Summarise", "Summarise", plain[-1].text[:9]]
    assert len(after) == 5
    assert after[2:4] == plain[-2:]


async def test_the_tools_of_a_conversation_go_with_its_summary() -> None:
    class Tools(Model):
        tools: list[Any] = []

        async def answer(self, messages: Sequence[LLMMessage], *, tools: Iterable[Any] | None = None) -> Answered:
            self.tools.append(tools)
            return await super().answer(messages, tools=tools)

    model = Tools()
    window = ContextWindow(soft_cap_chars=500, hard_cap_chars=9_000, min_tail_turns=1)
    await window.answer(model, conversation(6), tools=[{"name": "look"}])
    assert model.tools == [({"name": "look"},)] * 2


# S2.53
async def test_above_the_hard_cap_the_numbers_are_told_and_no_model_is_asked() -> None:
    model, window = Model(), ContextWindow(soft_cap_chars=500, hard_cap_chars=1_000, min_tail_turns=2)
    with pytest.raises(ContextTooLarge, match="2000.*1000.*2 turns") as raised:
        await window.answer(model, [LLMMessage("user", "x" * 1_500), LLMMessage("user", "y" * 500)])
    assert (raised.value.chars, raised.value.hard_cap_chars, raised.value.min_tail_turns) == (2_000, 1_000, 2)
    assert model.asked == []


@given(st.integers(0, 9), st.integers(0, 3), st.integers(1, 5), st.integers(1, 4))
def test_a_part_to_summarise_is_whole_turns_and_leaves_the_last_ones(
    turns: int, calls: int, tail: int, size: int
) -> None:
    said = conversation(turns, calls)
    begin, end = ContextWindow(size, min_tail_turns=tail).oldest_part(said)
    assert begin == 1
    if turns <= tail:
        assert begin == end
    else:
        assert said[end].role == "user"
        assert begin < end
        assert sum(1 for message in said[end:] if message.role == "user") >= tail


@pytest.mark.parametrize(
    "wrong", [{"observation_window": 0}, {"min_tail_turns": 0}, {"soft_cap_chars": 9, "hard_cap_chars": 8}]
)
def test_limits_that_mean_nothing_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="more|most"):
        ContextWindow(**wrong)
