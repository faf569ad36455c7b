"""An agent that fills its disk, by the real command: its message is parked, and the next one works."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from coordinator.cli.exits import ExitCode
from tests.e2e.conftest import Podium, wait_for_end
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE_S = 60
AGENT = """
import os
from podium.agent import BaseAgent
from podium.agent.models.delta_state import DeltaState

class Filler(BaseAgent):
    max_attempts = 2

    class State(DeltaState):
        _entity_type = "filler"
        count: int = 0

    async def on_message(self, ctx, message):
        ctx.state.count += 1
        if message["text"] == "fill":
            with (ctx.workspace / "big").open("wb", buffering=0) as file:
                while True:
                    file.write(os.urandom(1 << 16))
        (ctx.workspace / "small").write_text(message["text"])
        await ctx.send_message(f"did {message['text']}")
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Podium]:
    """The command on a home that is on a small file system."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root can mount a small file system to fill")
    home = disk / "home"
    podium = Podium(home, {**os.environ, "NO_COLOR": "1", "PODIUM_TEST_HOME": str(home)})
    try:
        yield podium
    finally:
        podium.end()
        # The service's log is open until it has exited.
        wait_until(lambda: not subprocess.run(["umount", disk], check=False).returncode, "a process uses the disk")


def test_a_full_disk_does_not_wedge_a_home(small: Podium, tmp_path: Path) -> None:
    code = tmp_path / "filler.py"
    code.write_text(AGENT)
    run = ("run", f"{code}:Filler", "--key", "a")
    said = small(*run, "-m", "hello", "-m", "fill", "-m", "more", check=False)
    assert said.returncode == ExitCode.TURN_FAILED
    assert "No space left on device" in said.stderr
    assert "did more" in said.stdout
    (filling,) = parked(small)
    small("verify")

    wait_for_end(small.home)  # it frees space on the disk
    ballast = tmp_path / "disk" / "ballast"
    (small.home / "journal.db-reserve").unlink()
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    for _ in range(10):  # the first may use the room of the journal's log, if that was read until the service had ended
        said = small(*run, "-m", "x" * 100_000, check=False)
        if said.returncode != ExitCode.OK:
            break
    assert said.returncode == ExitCode.OS_ERROR, said.stderr
    assert "full" in said.stderr or "No space" in said.stderr
    ballast.unlink()
    assert "did last" in small(*run, "-m", "last").stdout
    left = parked(small)  # if there was room for the long message and no more, both its attempts may have failed
    assert filling in left
    for message_id in left:
        small("drop", "filler/a", message_id)
    small("verify")


def parked(podium: Podium) -> list[str]:
    """The ids of the parked messages; others wait no more."""
    messages = podium.json("inbox", "filler/a", "--all")["messages"]
    assert {message["status"] for message in messages} == {"parked"}
    return [message["message_id"] for message in messages]
