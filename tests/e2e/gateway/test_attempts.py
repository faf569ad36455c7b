"""What those who follow a message are told of its attempts, when host, service and gateway are killed in mid-turn."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from coordinator.gateway_record import gateway_runs
from coordinator.home import Home
from tests.e2e.conftest import AGENTS, Podium, command, fresh_home, kill_at_once, processes_of
from tests.e2e.gateway.readers import DAEMON, HOSTS, Readers, serve
from tests.waiting import DEADLINE_S, until, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.anyio]


@pytest.fixture
def podium(tmp_path: Path) -> Iterator[Podium]:
    shutil.copy(AGENTS / "plain.py", tmp_path)
    (tmp_path / "podium.toml").write_text('agents = ["plain.py:Patient"]\n')
    with fresh_home({"PODIUM_STOP_TIMEOUT_S": "5"}) as podium:
        try:
            yield podium
        finally:
            podium("down", check=False)


class Sending:
    """A ``podium send`` to this machine's home that runs, and what it has printed."""

    def __init__(self, podium: Podium, directory: Path, key: str, text: str, *options: str) -> None:
        self._out, self._err = directory / f"{key}.out", directory / f"{key}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            arguments = [*command(), "send", f"patient/{key}", text, "--home", str(podium.home), *options]
            self._process = subprocess.Popen(arguments, env=podium.environment, stdout=out, stderr=err)

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    async def end(self) -> int:
        """Wait for its end; return its exit code."""
        return await asyncio.to_thread(self._process.wait)


async def test_each_attempt_that_a_follower_saw_is_told_as_failed_whatever_died(podium: Podium, tmp_path: Path) -> None:
    started = await asyncio.to_thread(serve, podium, tmp_path / "podium.toml")
    url, gate = started["url"], tmp_path / "gate"
    text = f"wait for {gate}"
    shown, as_json = Sending(podium, tmp_path, "shown", text), Sending(podium, tmp_path, "json", text, "--json")

    async def all_at(attempt: int) -> None:
        await readers.all_at(attempt)
        await until(lambda: as_json.out.count('"message_update"') == attempt)
        await until(lambda: len(re.findall("[0-9]+", shown.out)) == attempt)

    async with (
        asyncio.timeout(4 * DEADLINE_S),
        httpx.AsyncClient(timeout=DEADLINE_S) as http,
        asyncio.TaskGroup() as tasks,
    ):
        readers = Readers(http, url, ("read",))
        await readers.begin(tasks, text, 2)
        await all_at(1)
        before = processes_of(podium, DAEMON)
        kill_at_once(before)
        await until(lambda: set(processes_of(podium, DAEMON)) - set(before), "the service is not started again")
        await all_at(2)
        kill_at_once(processes_of(podium, HOSTS))
        await all_at(3)
        os.kill(started["pid"], signal.SIGKILL)
        wait_until(lambda: not gateway_runs(Home(podium.home)))
        await readers.all_lost()
        await asyncio.to_thread(serve, podium, tmp_path / "podium.toml", int(url.rpartition(":")[2]))
        gate.touch()
    readers.assert_right()
    assert (await shown.end(), await as_json.end()) == (0, 0)
    told = [json.loads(line) for line in as_json.out.splitlines()]
    attempts = [(each["type"], each["attempt"]) for each in told if each["type"] in {"turn_start", "turn_retry"}]
    starts_and_ends = [(kind, number) for number in (1, 2, 3) for kind in ("turn_start", "turn_retry")]
    assert attempts == starts_and_ends[:-1]
    assert [each["error"]["type"] for each in told if each["type"] == "turn_retry"] == ["HostLost", "HostLost"]
    assert re.fullmatch(r"[0-9]+\n[0-9]+\n[0-9]+ 1\n", shown.out), "each attempt begins at a line of its own"
    for attempt in (1, 2):
        assert f"attempt {attempt} failed: HostLost" in shown.err
    assert shown.err.count("Its output does not count.") == 2
