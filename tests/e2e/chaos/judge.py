"""The judge of a chaos: it compares states, files, journals and notes with what clients were told.

It waits until no message is pending. ``python -m tests.e2e.chaos.judge DIRECTORY AGENT …`` is a judge of the home that
``PODIUM_HOME`` names; it ends with an error if a message was lost or handled twice.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.journal.records import MessageStatus
from coordinator.home import Home
from podium.address import Address
from podium.agent_record import read_agent
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["judge", "told"]

REST_S = 180.0
"""For what is pending, on a busy machine."""


def told(directory: Path, what: str) -> list[str]:
    """Return the lines that the clients or agents wrote."""
    path = directory / what
    return path.read_text().splitlines() if path.exists() else []


def judge(home: Home, directory: Path, agents: Sequence[str], podium: Callable[..., str]) -> None:
    """Wait until nothing is pending, and compare what there is with what the clients were told; none of them runs.

    Args:
        directory: where clients and agents wrote.
        podium: runs the command on the home, and returns what it prints.
    """
    with closing(home.journal(read_only=True)) as store, closing(home.blobs()) as blobs:
        wait_until(lambda: not store.sessions_with_pending(), "messages are left", REST_S)
        acknowledged: dict[str, set[str]] = {agent: set() for agent in agents}
        for line in told(directory, "acknowledged"):
            agent, number, message_id = line.split()
            acknowledged[agent].add(number)
            assert store.message(message_id).status is MessageStatus.CONSUMED, line  # type: ignore[arg-type]
        for agent in agents:
            record = read_agent(store, blobs, Address.parse(agent))
            numbers = [str(number) for number in record.state["numbers"]]  # type: ignore[union-attr]
            assert not acknowledged[agent] - set(numbers), f"{agent} has lost messages"
            assert [number for number, times in Counter(numbers).items() if times > 1] == [], f"{agent}: twice"
            assert record.state["stepped"] == numbers, f"{agent}: a step was not restored"
            session = store.session(agent)
            events = list(store.events(session.main_branch_id, types=["user_message"]))
            handled = [_number(event.payload) for event in events]
            assert handled == numbers, f"{agent}: the journal has other turns than the state"
            written = [number for number in numbers if int(number.rpartition("-")[2]) % 3 == 0]
            files = podium("cat", agent, "numbers").split() if written else []
            assert files == written, f"{agent}: the files have other turns than the state"
    _check_steps(directory)
    assert json.loads(podium("verify", "--json"))["ok"]


def _check_steps(directory: Path) -> None:
    """No step ran after it had ended."""
    ended: set[str] = set()
    for line in told(directory, "notes"):
        what, number = line.split()
        assert what == "ended" or number not in ended, f"the step of {number} ran after it had ended"
        if what == "ended":
            ended.add(number)


def _number(payload: bytes | None) -> str:
    """The number of a handled message."""
    assert payload is not None
    return str(json.loads(payload)["message"]["number"])


def main() -> None:
    """Judge the home that the environment names."""

    def podium(*arguments: str) -> str:
        command = [str(Path(sys.executable).parent / "podium"), *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout

    judge(Home(Path(os.environ["PODIUM_HOME"])), Path(sys.argv[1]), sys.argv[2:], podium)


if __name__ == "__main__":
    main()
