from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from coordinator.cli.exits import ExitCode
from coordinator.cli.reply import JsonReply, TextReply, outcome
from podium.turn.busy import BusyPolicy
from podium.turn.journal.commit import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable

Frames = list[dict[str, Any]]


def start(reply_id: str = "r1") -> dict[str, Any]:
    return {"type": "message_start", "reply_id": reply_id}


def update(delta: str, reply_id: str = "r1") -> dict[str, Any]:
    return {"type": "message_update", "reply_id": reply_id, "delta": delta}


def end(text: str, reply_id: str = "r1") -> dict[str, Any]:
    return {"type": "message_end", "reply_id": reply_id, "text": text}


class Said:
    """What is said while something is waited for."""

    def __init__(self, on_clear: Callable[[], None] = lambda: None) -> None:
        self.texts: list[str] = []
        self._on_clear = on_clear

    def show(self, text: str, *, line: bool) -> None:
        assert line
        self.texts.append(text)

    def clear(self) -> None:
        self._on_clear()


def show(capsys: pytest.CaptureFixture[str], frames: Frames) -> tuple[str, str]:
    view = TextReply(Said(), "echo/a")
    for frame in frames:
        view.show(frame)
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_text_is_written_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    view = TextReply(Said(), "echo/a")
    view.show(start())
    view.show(update("Hel"))
    assert capsys.readouterr().out == "Hel"
    view.show(update("lo"))
    assert capsys.readouterr().out == "lo"
    view.show(end("Hello"))
    view.show({"type": "turn_end", "turn": 1, "version": 3, "patch": []})
    assert capsys.readouterr().out == "\n"


def test_text_that_was_not_streamed_is_shown_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(capsys, [start(), end("whole\n"), start("r2"), update("ha", "r2"), end("half", "r2")]) == (
        "whole\nhalf\n",
        "",
    )


def test_two_replies_at_once_do_not_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    frames = [update("a1", "a"), update("b1", "b"), update("a2", "a"), end("a1a2", "a"), end("b1", "b")]
    assert show(capsys, frames)[0] == "a1\nb1\na2\n"


def test_a_retry_says_that_what_came_before_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"type": "ValueError", "message": "no.\nmore"}
    frames = [update("one"), {"type": "turn_retry", "attempt": 1, "error": error}, update("two"), end("two")]
    assert show(capsys, frames) == (
        "one\ntwo\n",
        "attempt 1 failed: ValueError: no. Its output does not count. Trying again.\n",
    )


def test_an_attempt_that_was_begun_anew_says_that_what_came_before_does_not_count(
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = {"type": "turn_start", "turn": 1, "attempt": 1}
    frames = [again, start(), update("one"), again, start(), update("one"), end("one")]
    assert show(capsys, frames) == (
        "one\none\n",
        "The attempt was begun anew; its output so far does not count.\n",
    )
    artifact = {"type": "artifact", "artifact_id": "art_1", "name": "n", "media_type": "text/plain", "size": 1}
    assert show(capsys, [again, artifact, again, {"type": "turn_end"}]) == ("", "")


def test_a_failure_says_what_was_kept_and_what_became_of_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = show(capsys, [{"type": "error", "error": {"type": "KeyError", "message": "'x'"}, "parked": True}])
    assert err == (
        "failed: KeyError: 'x'. State and files are as before it. The message is parked; podium inbox shows it.\n"
    )


def test_a_failure_names_the_log_if_it_says_anything(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    view = TextReply(Said(), "echo/a", log=log)
    failure = {"type": "error", "error": {"type": "KeyError", "message": "'x'"}, "parked": False}
    view.show(failure)
    log.touch()
    view.show(failure)
    assert "log" not in capsys.readouterr().err
    log.write_text("Traceback")
    view.show(failure)
    assert capsys.readouterr().err.endswith(f"as before it.\nThe agent's log says more: {log}\n")


def test_a_cancelled_reply_is_no_failure_of_the_agent(capsys: pytest.CaptureFixture[str]) -> None:
    _, err = show(capsys, [{"type": "error", "error": {"type": "Cancelled", "message": ""}, "parked": False}])
    assert err == "cancelled: nothing of this turn was kept\n"
    _, err = show(capsys, [{"type": "error", "error": Cancellation().error, "parked": False}])
    assert err == "cancelled: nothing of this turn was kept\n"
    stop = Cancellation(BusyPolicy.INTERRUPT, "msg_2")
    _, err = show(capsys, [{"type": "error", "error": stop.error, "parked": False}])
    assert err == "cancelled: message msg_2 took its place (interrupt)\n"


def test_events_of_the_agent_and_unknown_frames(capsys: pytest.CaptureFixture[str]) -> None:
    frames = [update("x"), {"type": "event", "name": "step", "data": {"n": 1}}, {"type": "from_the_future"}]
    assert show(capsys, frames) == ("x\n", '[step] {"n":1}\n')


def test_commands_are_shown_as_in_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, dict[str, object]]] = [
        ("start", {"argv": ["sh", "-c", "make it"]}),
        ("output", {"stream": "stderr", "text": "no rule\n"}),
        ("end", {"status": 137, "limit": "time"}),
        ("end", {"status": 0, "limit": None}),
        ("end", {"other": "of an agent"}),
    ]
    frames = [{"type": "event", "name": f"podium.command_{what}", "data": data} for what, data in told]
    assert show(capsys, frames)[1].splitlines() == [
        "$ sh -c 'make it'",
        "no rule",
        "it ended with status 137, as it was over its limit of time",
        '[podium.command_end] {"other":"of an agent"}',
    ]


def test_a_result_is_a_line_of_json_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    frames = [start(), end("Done"), {"type": "turn_end", "data": {"sum": 6, "of": None}}]
    assert show(capsys, frames) == ('Done\n{"sum":6,"of":null}\n', "")


def test_json_is_one_frame_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    emitted = {"type": "event", "name": "step", "data": {"size": 1}, "ordinal": 1}
    frames = [update("a\nb"), end("a\nb"), emitted, {"type": "artifact", "size": 3}, {"type": "from_the_future"}]
    for frame in frames:
        JsonReply().show({**frame, "size": 14} if frame is emitted else frame)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == frames


def test_the_spinner_stops_before_the_first_output(capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(on_clear=lambda: outputs.append(capsys.readouterr().out))
    outputs: list[str] = []
    view = TextReply(said, "echo/a")
    view.show(start())
    assert outputs == []
    view.show(update("x"))
    assert outputs[0] == ""


def test_a_message_that_waits_is_told_its_place() -> None:
    said = Said()
    view = TextReply(said, "echo/a")
    for kind, before in (("accepted", 2), ("queued", 1), ("queued", 0)):
        view.show({"type": kind, "before": before})
    assert said.texts == ["echo/a … 2 before yours", "echo/a … 1 before yours", "echo/a … yours is next"]
    alone = Said()
    TextReply(alone, "echo/a").show({"type": "accepted", "before": 0})
    assert alone.texts == []


def test_a_message_that_was_not_taken(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = {"type": "AgentBusy", "message": "echo/a is busy"}
    TextReply(Said(), "echo/a").refuse(refusal)
    assert capsys.readouterr().err == "not sent: echo/a is busy\n"
    JsonReply().refuse(refusal)
    frame = json.loads(capsys.readouterr().out)
    assert frame == {"type": "error", "message_id": None, "error": refusal, "parked": False}


def test_errors_in_a_reply_have_their_hints(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"type": "UnsupportedFormat", "message": "a layer has format 9"}
    _, err = show(capsys, [{"type": "error", "error": error, "parked": False}])
    assert err == "failed: UnsupportedFormat: a layer has format 9; upgrade podium. State and files are as before it.\n"
    TextReply(Said(), "echo/a").refuse(error)
    assert capsys.readouterr().err == "not sent: a layer has format 9; upgrade podium\n"
    JsonReply().refuse(error)
    assert json.loads(capsys.readouterr().out)["error"] == error


@pytest.mark.parametrize(("kind", "is_hinted"), [("AskFailed", True), ("AskRefused", False), ("AskTimeout", False)])
def test_a_question_that_failed_names_the_command_that_retries_it(
    capsys: pytest.CaptureFixture[str], kind: str, is_hinted: bool
) -> None:
    _, err = show(capsys, [{"type": "error", "error": {"type": kind, "message": "no answer"}, "parked": False}])
    assert ("`podium retry AGENT MESSAGE_ID` retries a parked message" in err) is is_hinted


def test_what_the_last_frame_means() -> None:
    before = ExitCode.UNAVAILABLE
    assert outcome({"type": "turn_end"}, before) is ExitCode.OK
    assert outcome({"type": "error", "error": {"type": "ValueError"}}, before) is ExitCode.TURN_FAILED
    assert outcome({"type": "message_end"}, before) is before


def test_artifacts_are_told_of_when_their_turn_is_committed(capsys: pytest.CaptureFixture[str]) -> None:
    def artifact(artifact_id: str) -> dict[str, Any]:
        frame = {"name": "a.png", "media_type": "image/png", "size": 7}
        return {"type": "artifact", "artifact_id": artifact_id, **frame}

    begun: dict[str, Any] = {"type": "turn_start", "turn": 1, "attempt": 1}
    lost = artifact("art_lost")
    frames = [begun, lost, {**begun, "attempt": 2}, update("here"), artifact("art_kept")]
    out, err = show(capsys, frames)
    assert (out, err) == ("here", "")
    out, err = show(capsys, [*frames, {"type": "turn_end"}])
    assert out == "here\n"
    assert err == "[a.png] image/png, 7 bytes: podium artifact art_kept\n"
    parked = {"type": "error", "error": {"type": "ValueError", "message": "no"}, "parked": True}
    _, err = show(capsys, [begun, lost, parked])
    assert "art_lost" not in err


def test_a_pause_says_who_decides_and_how(capsys: pytest.CaptureFixture[str]) -> None:
    pause = {"message_id": "msg_1", "call_id": "decide#1", "reason": "pay 5?", "expires": None}
    _, err = show(capsys, [{"type": "tool_decision_pending", **pause, "schema": True, "args_hash": "3f"}])
    assert "pay 5?" in err
    assert "podium resolve msg_1 JSON" in err
    assert "podium link msg_1 " in err
