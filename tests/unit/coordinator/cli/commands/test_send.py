"""``podium send`` and ``podium chat``: to a server that answers by a script."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.client.loop_thread import LoopThread
from coordinator.testing import ScriptedRequest, ScriptedResponse, ScriptedServer, scripted_sse_response
from tests.unit.coordinator.client.message_script import ACCEPTED, AGENT, MESSAGE, STREAM, frame

BUSY = {"error": {"message": "hello/alice is busy", "type": "conflict_error", "code": "agent_busy", "param": None}}
FAILED = [
    ACCEPTED,
    ("msg_1/failed", frame("error", error={"type": "ValueError", "message": "no"}, parked=True)),
    ("msg_1/end", frame("agent_end", outcome="parked")),
]


def answer(request: ScriptedRequest) -> ScriptedResponse:
    body = request.json
    assert isinstance(body, dict)
    if body["when_busy"] == "reject":
        return ScriptedResponse.json(BUSY, 409)
    if "prefer" in request.headers:
        return ScriptedResponse.json({"message_id": MESSAGE, "agent": AGENT, "position": 1, "before": 2}, 202)
    return scripted_sse_response(*(FAILED if body["message"] == {"text": "fail"} else STREAM))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    loop = LoopThread()
    found = ScriptedServer(answer)
    loop.run(found.__aenter__())
    yield found
    loop.run(found.__aexit__(None, None, None))
    loop.close()


Command = Callable[..., tuple[str, str]]


@pytest.fixture
def podium(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str, code: int = ExitCode.OK) -> tuple[str, str]:
        capsys.readouterr()
        ended = main([*arguments, "--url", server.url, "--key", "pk_test"])
        captured = capsys.readouterr()
        assert ended == code, captured.err
        return captured.out, captured.err

    return run


def test_send_prints_the_reply(podium: Command, server: ScriptedServer) -> None:
    assert podium("send", AGENT, "hi")[0] == "Hello\n"
    assert server.requests[0].json == {"message": {"text": "hi"}, "when_busy": "enqueue"}
    assert server.requests[0].headers["authorization"] == "Bearer pk_test"


def test_send_takes_a_json_object(podium: Command, server: ScriptedServer) -> None:
    podium("send", AGENT, "--json-message", '{"n": [1, 2]}', "--when-busy", "steer")
    assert server.requests[0].json == {"message": {"n": [1, 2]}, "when_busy": "steer"}
    for wrong in (("--json-message", "[1]"), ("--json-message", "{"), (), ("text", "--json-message", "{}")):
        podium("send", AGENT, *wrong, code=ExitCode.USAGE)
    podium("send", AGENT, "text", "--idempotency-key", "k", code=ExitCode.USAGE)
    podium("send", "nowhere", "text", code=ExitCode.INVALID_ADDRESS)
    assert len(server.requests) == 1


def test_send_prints_frames_as_json(podium: Command) -> None:
    out, err = podium("send", AGENT, "hi", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [found for _, found in STREAM]
    assert not err


def test_send_without_waiting_prints_the_message_id(podium: Command, server: ScriptedServer) -> None:
    out, err = podium("send", AGENT, "hi", "--no-wait", "--idempotency-key", "k")
    assert (out, err) == (f"{MESSAGE}\n", "2 before it in the inbox of hello/alice\n")
    assert server.requests[0].headers["idempotency-key"] == "k"
    assert json.loads(podium("send", AGENT, "hi", "--no-wait", "--json")[0])["message_id"] == MESSAGE


def test_a_message_that_fails_or_is_refused_ends_with_its_code(podium: Command) -> None:
    _, err = podium("send", AGENT, "fail", code=ExitCode.TURN_FAILED)
    assert "failed: ValueError: no" in err
    _, err = podium("send", AGENT, "hi", "--when-busy", "reject", code=ExitCode.AGENT_BUSY)
    assert "not sent: hello/alice is busy" in err


def test_a_chat_sends_each_line(
    podium: Command, server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lines").write_text("one\n\nfail\ntwo\n")
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        out, _ = podium("chat", AGENT, code=ExitCode.TURN_FAILED)
    assert out == "Hello\nHello\n"
    assert [request.json["message"]["text"] for request in server.requests] == ["one", "fail", "two"]  # type: ignore[index,call-overload]


def test_without_a_server_the_home_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["send", AGENT, "hi", "--home", os.fspath(tmp_path / "none")]) == ExitCode.HOME_ERROR
    assert "is not a podium home" in capsys.readouterr().err
