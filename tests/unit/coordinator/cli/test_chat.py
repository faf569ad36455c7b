from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.chat import Chat
from coordinator.cli.exits import ExitCode
from coordinator.service.client import ServiceRefused
from podium.turn.busy import BusyPolicy
from tests.unit.coordinator.cli.cli_service import REF, Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from coordinator.service.client import AgentRef


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Typed:
    def __init__(self, *lines: str) -> None:
        self._lines = list(lines)

    async def next(self) -> str | None:
        return self._lines.pop(0) if self._lines else None


def test_messages_are_sent_in_order_and_answered_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    assert asyncio.run(Chat(service, REF, "a", json=False).send_all(["one", "two"])) is ExitCode.OK
    assert service.sent == [("a", {"text": "one"}), ("a", {"text": "two"})]
    assert capsys.readouterr().out == "one\ntwo\n"


def test_the_first_failure_decides_and_the_rest_is_sent(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    code = asyncio.run(Chat(service, REF, "a", json=False).send_all(["one", "fail", "two"]))
    assert code is ExitCode.TURN_FAILED
    captured = capsys.readouterr()
    assert captured.out == "one\ntwo\n"
    assert "ValueError: no" in captured.err
    assert "that was message 2 of 3" in captured.err


def test_ctrl_c_cancels_the_reply_and_drops_what_was_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service(press_ctrl_c)
    code = asyncio.run(Chat(service, REF, "a", json=False).send_all(["wait", "two"]))
    assert code is ExitCode.INTERRUPTED
    assert [message["text"] for _, message in service.sent] == ["wait"]
    captured = capsys.readouterr()
    assert captured.out == "so far\n"
    assert "cancelled: nothing of this turn was kept" in captured.err


def test_ctrl_c_in_a_chat_cancels_the_reply_and_the_chat_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service(press_ctrl_c)
    code = asyncio.run(Chat(service, REF, "a", json=False).converse(Typed("wait", "", "two")))
    assert code is ExitCode.TURN_CANCELLED
    assert capsys.readouterr().out == "so far\ntwo\n"


def test_a_second_ctrl_c_leaves_at_once() -> None:
    class Deaf(Service):
        async def cancel(self, agent: str, message_id: str) -> None:
            press_ctrl_c()
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(Chat(Deaf(press_ctrl_c), REF, "a", json=False).send("wait"))


def test_a_stream_that_ends_too_early_is_no_success() -> None:
    class Broken(Service):
        async def send(
            self, agent: AgentRef, key: str, message: dict[str, Any], *, when_busy: BusyPolicy = BusyPolicy.ENQUEUE
        ) -> AsyncIterator[dict[str, Any]]:
            yield {"type": "accepted", "message_id": "msg_1", "position": 1}

    assert asyncio.run(Chat(Broken(), REF, "a", json=False).send("x")) is ExitCode.UNAVAILABLE


def test_a_message_that_is_refused_for_now_is_said_and_the_next_one_sent(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    chat = Chat(service, REF, "a", json=False, when_busy=BusyPolicy.REJECT)
    assert asyncio.run(chat.converse(Typed("busy", "two"))) is ExitCode.AGENT_BUSY
    assert service.policies == [BusyPolicy.REJECT] * 2
    captured = capsys.readouterr()
    assert captured.out == "two\n"
    assert captured.err == "not sent: echo/a is busy\n"


@pytest.mark.parametrize(
    ("text", "kind", "says", "hint"),
    [
        (
            "too new",
            "StateTooNew",
            "the stored state has version 2",
            (
                "msg_1 waits in the inbox of echo/a and is handled before newer messages.\n"
                "podium retry echo/a msg_1 retries it, podium drop echo/a msg_1 removes it."
            ),
        ),
        (
            "lost",
            "ServiceError",
            "the service of this home ended",
            "msg_1 waits in the inbox of echo/a unless it was handled meanwhile; podium inbox echo/a shows what waits.",
        ),
    ],
)
def test_a_message_that_waits_after_an_error_is_named(
    capsys: pytest.CaptureFixture[str], text: str, kind: str, says: str, hint: str
) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(Chat(Service(), REF, "a", json=True).send_all([text, "two"]))
    (error,) = raised.value.exceptions
    assert error.__notes__ == [hint]
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last == {
        "type": "error",
        "message_id": "msg_1",
        "error": {"type": kind, "message": says},
        "parked": False,
        "pending": True,
    }


def test_another_refusal_ends_the_conversation() -> None:
    class Refusing(Service):
        async def send(
            self, agent: AgentRef, key: str, message: dict[str, Any], *, when_busy: BusyPolicy = BusyPolicy.ENQUEUE
        ) -> AsyncIterator[dict[str, Any]]:
            if when_busy is not BusyPolicy.REJECT:
                raise ServiceRefused("AgentFileBroken", "broken")
            yield {}

    with pytest.raises(ExceptionGroup) as refused:
        asyncio.run(Chat(Refusing(), REF, "a", json=False).send("x"))
    assert refused.group_contains(ServiceRefused)
