"""A branch as messages: what events say, and which responses stand for events without a payload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.responses.items import NO_RESULT, messages_of, paired, user_item
from coordinator.responses.transcript import BranchEvent, GivenResponse, Transcript
from podium.models.port import LLMMessage, ToolCall

if TYPE_CHECKING:
    from chronicle.canonical import Json


def said(text: str) -> list[dict[str, object]]:
    return [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]


class Branch:
    """Events and responses at times that grow by one."""

    def __init__(self, name: str = "br_1") -> None:
        self.name = name
        self.events: list[BranchEvent] = []
        self.responses: list[GivenResponse] = []
        self.now_ms = 0

    def append(self, event_type: str, payload: Json = None) -> str:
        self.now_ms += 1
        event_id = f"evt_{self.name}_{len(self.events) + 1}"
        self.events.append(BranchEvent(event_id, len(self.events) + 1, self.name, event_type, self.now_ms, payload))
        return event_id

    def respond(self, text: str, answer: str | None, head: str | None = None) -> str:
        """Add a response to a text; without an answer it failed."""
        self.now_ms += 1
        if head is None and self.events:
            head = self.events[-1].event_id
        response_id = f"rsp_{self.now_ms:04}"
        completed_ms = None if answer is None else self.now_ms
        output = [] if answer is None else said(answer)
        self.responses.append(
            GivenResponse(
                response_id, self.name, head, completed_ms, messages_of([user_item(text)]), messages_of(output)
            )
        )
        return response_id

    def fork(self, name: str, at: int) -> Branch:
        fork = Branch(name)
        fork.events, fork.responses, fork.now_ms = self.events[:at], self.responses, self.now_ms
        return fork

    def told(self) -> list[str]:
        """Return the messages as text, each with the first letter of its role."""
        known = {response.response_id: response for response in self.responses}
        transcript = Transcript().extended(self.events, known)
        again = Transcript()
        for event in self.events:  # as it grew
            again = again.extended([event], known)
        assert again.messages(known) == transcript.messages(known)
        return [f"{message.role[0]}:{message.text}" for message in transcript.messages(known)]


def test_the_loop_of_a_client_without_payloads_is_remembered() -> None:
    branch = Branch()
    for number in (1, 2):
        branch.append("user_message")
        branch.respond(f"q{number}", f"a{number}")
        branch.append("assistant_message")
    assert branch.told() == ["u:q1", "a:a1", "u:q2", "a:a2"]


def test_payloads_are_told_as_they_are() -> None:
    branch = Branch()
    branch.append("user_message", "plain")
    branch.append("user_message", {"text": "keyed"})
    branch.append("assistant_message", {"content": "said"})
    branch.append("note", "for the client")
    branch.append("checkpoint", {"any": 1})
    branch.append("retrieval_result", {"b": 2, "a": 1})
    branch.append("tool_result", {"call_id": "c1", "output": "42"})
    assert branch.told() == ["u:plain", "u:keyed", "a:said", 'u:Retrieved:\n{"a":1,"b":2}', "t:42"]


def test_an_input_follows_a_head_that_says_something_and_comes_before_its_output() -> None:
    branch = Branch()
    branch.append("user_message", "context")
    branch.respond("question", "answer")
    branch.append("assistant_message")
    assert branch.told() == ["u:context", "u:question", "a:answer"]


def test_a_response_on_an_empty_branch_stands_for_the_first_event() -> None:
    branch = Branch()
    branch.respond("question", "answer")
    branch.append("assistant_message")
    assert branch.told() == ["u:question", "a:answer"]


def test_the_latest_of_two_responses_on_one_head_stands() -> None:
    branch = Branch()
    branch.append("user_message")
    branch.respond("q", "lost on the way")
    branch.respond("q", "seen")
    branch.append("assistant_message")
    branch.append("user_message")
    branch.respond("q2", "a2")
    branch.append("assistant_message")
    assert branch.told() == ["u:q", "a:seen", "u:q2", "a:a2"]


def test_a_failed_response_leaves_the_question() -> None:
    branch = Branch()
    branch.append("user_message")
    branch.respond("q", None)
    branch.append("note", "gave up")
    branch.append("assistant_message")
    assert branch.told() == ["u:q"]


def test_a_response_that_ended_after_the_event_does_not_stand_for_it() -> None:
    branch = Branch()
    branch.append("user_message")
    branch.append("assistant_message")
    branch.respond("q", "a", head=branch.events[0].event_id)
    assert branch.told() == ["u:q"]


def test_racing_writers_are_told_as_pairs() -> None:
    """Both ran on the head of the second: each answer stays with its own question."""
    branch = Branch()
    branch.append("user_message")
    branch.append("user_message")
    branch.respond("q1", "a1")
    branch.respond("q2", "a2")
    branch.append("assistant_message")
    branch.append("assistant_message")
    told = branch.told()
    pairs = {(told[0], told[1]), (told[2], told[3])}
    assert len(told) == 4
    assert pairs == {("u:q1", "a:a1"), ("u:q2", "a:a2")}


def test_a_payload_can_name_its_response() -> None:
    branch = Branch()
    first = branch.append("user_message")
    second = branch.append("user_message")
    one, two = branch.respond("q1", "a1", first), branch.respond("q2", "a2", second)
    branch.append("assistant_message", {"response_id": one})
    branch.append("assistant_message", {"response_id": two})
    assert branch.told() == ["u:q1", "u:q2", "a:a1", "a:a2"]


def test_a_fork_has_its_own_answers_and_the_main_line_keeps_its() -> None:
    main = Branch()
    main.append("user_message")
    main.respond("q", "a")
    fork = main.fork("br_2", 1)
    fork.respond("another question", "another answer")
    fork.append("assistant_message")
    main.now_ms = fork.now_ms
    main.append("assistant_message")
    assert main.told() == ["u:q", "a:a"]
    assert fork.told() == ["u:another question", "a:another answer"]


@pytest.mark.parametrize("count", [1, 7])
def test_what_is_appended_changes_nothing_before_it(count: int) -> None:
    branch = Branch()
    seen: list[str] = []
    for number in range(count):
        branch.append("user_message")
        branch.respond(f"q{number}", f"a{number}")
        branch.append("assistant_message")
        told = branch.told()
        assert told[: len(seen)] == seen
        seen = told


def test_calls_and_results_are_paired() -> None:
    calls = LLMMessage("assistant", "", (ToolCall("c1", "f"), ToolCall("c2", "f")))
    first = LLMMessage("tool", "one", tool_call_id="c1")
    unnamed = LLMMessage("tool", "two", tool_call_id="")
    late = LLMMessage("tool", "three", tool_call_id="c2")
    user = LLMMessage("user", "next")
    missing = LLMMessage("tool", NO_RESULT, tool_call_id="c2")
    assert paired([calls, first, unnamed]) == [calls, first, LLMMessage("tool", "two", tool_call_id="c2")]
    told = LLMMessage("user", "Result of the tool call c2:\nthree")
    assert paired([calls, first, user, late]) == [calls, first, missing, user, told]
    assert paired([calls, first]) == [calls, first, missing]
    assert paired([unnamed]) == [LLMMessage("user", "Result of a tool:\ntwo")]
