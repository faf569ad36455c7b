"""``podium run`` as a person meets it: on a terminal, with Ctrl-C and Ctrl-D, stopped in the middle of a message."""

from __future__ import annotations

import signal
import subprocess
from typing import TYPE_CHECKING

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import AGENTS, TIMEOUT_S, command
from tests.terminal import CTRL_C, CTRL_D, TerminalProcess

if TYPE_CHECKING:
    from tests.e2e.conftest import Podium

PATIENT = f"{AGENTS / 'plain.py'}:Patient"


def test_a_chat_on_a_terminal(podium: Podium) -> None:
    chat = [*command(), "run", PATIENT, "--key", "t", "--home", str(podium.home)]
    with TerminalProcess(chat, podium.home.parent, limit_s=TIMEOUT_S) as terminal:
        terminal.expect("patient/t, new")
        terminal.expect("Ctrl-C cancels a reply, Ctrl-D exits.")
        terminal.expect(">")
        terminal.press("hello\r")
        terminal.expect(" 1\r\n")
        terminal.expect(">")
        terminal.press("hang\r")
        terminal.expect("patient/t …")
        terminal.press(CTRL_C)
        terminal.expect("cancelling the reply; Ctrl-C again exits")
        terminal.expect("cancelled: nothing of this turn was kept")
        terminal.expect(">")
        terminal.press("fail\r")
        terminal.expect("attempt 1 failed: ValueError: as told. Its output does not count. Trying again.")
        terminal.expect("failed: ValueError: as told. State and files are as before it. The message is parked")
        terminal.expect(">")

        # While it is open, others attach to its service, and Ctrl-C in one of them is theirs alone.
        assert podium("ps").stderr == "the service is up\n"
        assert podium.json("ps")["agents"][0] | {"created_at": 0, "updated_at": 0, "version": 0, "memory": 0} == {
            "agent": "patient/t",
            "type": "patient",
            "key": "t",
            "status": "awake",
            "turn": 1,
            "version": 0,
            "created_at": 0,
            "updated_at": 0,
            "pending": 0,
            "parked": 1,
            "isolation": "process",
            "sandbox": "landlock",
            "memory": 0,
        }
        failed = podium("run", PATIENT, "--key", "t", "--message", "fail", "--message", "on", check=False)
        assert failed.returncode == ExitCode.TURN_FAILED
        assert failed.stdout.splitlines()[-1].split()[-1] == "2"
        surroundings, position, *_ = failed.stderr.splitlines()
        assert "working directory" in surroundings, "the chat was started in another one"
        assert position == "patient/t, at turn 1"
        stop_in_the_middle(podium)

        terminal.press("again\r")
        terminal.expect(" 3\r\n")
        terminal.expect(">")
        terminal.press(CTRL_C)
        terminal.expect("Ctrl-D exits, and so does Ctrl-C again.")
        terminal.expect(">")
        terminal.press(CTRL_D)
        assert terminal.wait() == ExitCode.OK
    assert podium.json("state", "patient/t")["state"]["said"] == ["hello", "on", "again"]
    assert [version["turn"] for version in podium.json("history", "patient/t", "out.txt")] == [1, 2, 3]
    assert podium("verify").returncode == ExitCode.OK


def stop_in_the_middle(podium: Podium) -> None:
    """Press Ctrl-C, as a signal, while a reply is under way."""
    arguments = ["run", PATIENT, "--key", "t", "--json", "--message", "hang", "--message", "never sent"]
    with subprocess.Popen(
        [*command(), *arguments, "--home", str(podium.home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "message_update" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == ExitCode.INTERRUPTED
    assert '"type":"Cancelled"' in rest.splitlines()[-1]
    assert "cancelling the reply" in said
