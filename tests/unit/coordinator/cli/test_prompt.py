"""The chat on a real terminal, with a stand-in for the service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from coordinator.cli.exits import ExitCode
from tests.terminal import CTRL_C, CTRL_D, TerminalProcess

ROOT = Path(__file__).parents[4]
CHAT = """
import asyncio, sys
from coordinator.cli.chat import Chat
from coordinator.cli.line_input import chosen_input
from tests.unit.coordinator.cli.cli_service import REF, Service

async def talk():
    return await Chat(Service(), REF, "a", json="--json" in sys.argv).converse(chosen_input())

try:
    sys.exit(asyncio.run(talk()))
except KeyboardInterrupt:
    sys.exit(130)
"""
COMMAND = [sys.executable, "-c", CHAT]


def test_lines_are_answered_until_ctrl_d() -> None:
    with TerminalProcess(COMMAND, ROOT) as terminal:
        terminal.expect(">")
        terminal.press("hello\r")
        terminal.expect("\rhello\r\n")
        terminal.expect(">")
        terminal.press("\r")
        terminal.expect(">")
        terminal.press("again\r")
        terminal.expect("\ragain\r\n")
        terminal.expect(">")
        terminal.press(CTRL_D)
        assert terminal.wait() == ExitCode.OK


def test_ctrl_c_cancels_a_reply_and_the_chat_goes_on() -> None:
    with TerminalProcess(COMMAND, ROOT) as terminal:
        terminal.expect(">")
        terminal.press("wait\r")
        terminal.expect("so far")
        terminal.press(CTRL_C)
        terminal.expect("cancelling the reply")
        terminal.expect("cancelled: nothing of this turn was kept")
        terminal.expect(">")
        terminal.press("go on\r")
        terminal.expect("\rgo on\r\n")
        terminal.expect(">")
        terminal.press(CTRL_D)
        assert terminal.wait() == ExitCode.OK


def test_ctrl_c_at_the_prompt_says_how_to_leave_and_leaves_at_the_second() -> None:
    with TerminalProcess(COMMAND, ROOT) as terminal:
        terminal.expect(">")
        terminal.press(CTRL_C)
        terminal.expect("Ctrl-D exits, and so does Ctrl-C again.")
        terminal.expect(">")
        terminal.press("half a line")
        terminal.press(CTRL_C)
        assert terminal.wait() == ExitCode.OK


def test_a_failed_message_does_not_fail_a_chat_on_a_terminal() -> None:
    with TerminalProcess(COMMAND, ROOT) as terminal:
        terminal.expect(">")
        terminal.press("fail\r")
        terminal.expect("failed: ValueError: no")
        terminal.expect(">")
        terminal.press(CTRL_D)
        assert terminal.wait() == ExitCode.OK


def test_lines_of_a_pipe() -> None:
    piped = subprocess.run(
        COMMAND, cwd=ROOT, input="one\n\nfail\ntwo", capture_output=True, text=True, timeout=60, check=False
    )
    assert piped.stdout == "one\ntwo\n"
    assert "ValueError: no" in piped.stderr
    assert piped.returncode == ExitCode.TURN_FAILED


def test_lines_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("one\ntwo\n")
    with (tmp_path / "lines").open() as lines:
        read = subprocess.run(COMMAND, cwd=ROOT, stdin=lines, capture_output=True, text=True, timeout=60, check=False)
    assert (read.stdout, read.stderr, read.returncode) == ("one\ntwo\n", "", ExitCode.OK)


def test_json_over_a_pipe_is_frames_and_nothing_else() -> None:
    piped = subprocess.run([*COMMAND, "--json"], cwd=ROOT, input=b"one\n", capture_output=True, timeout=60, check=False)
    assert piped.stdout.splitlines() == [
        b'{"type":"accepted","message_id":"msg_1","position":1,"before":0}',
        b'{"type":"message_update","message_id":"msg_1","reply_id":"r","delta":"one"}',
        b'{"type":"message_end","message_id":"msg_1","reply_id":"r","text":"one"}',
        b'{"type":"turn_end","message_id":"msg_1","turn":1,"version":1,"patch":[]}',
    ]
    assert piped.stderr == b""
