"""A home whose disk is full: it says so, what can be given up is given up, and it goes on when there is room."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import StorageRefused
from chronicle.journal.records import MessageStatus
from chronicle.journal.sqlite.reserve import RESERVE_BYTES
from chronicle.workspace.api.workspace import open_api_workspace
from chronicle.workspace.port import LayerSpec
from coordinator.cli.exits import ExitCode
from coordinator.cli.main import main
from coordinator.home import Home
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.testing import AgentHarness, HarnessOptions
from tests.unit.coordinator.cli.cli_home import HomeMaker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 48 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root can mount a small file system to fill")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(directory: Path) -> Path:
    """Take all that is free, and return the file that has it."""
    ballast = directory / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    free = os.statvfs(directory)
    assert free.f_bavail * free.f_frsize < 4096
    return ballast


def test_a_full_home_still_records_and_drops(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maker = HomeMaker(disk / "home")
    agent = maker.agent("counter/a")
    agent.turn("one", {"out.txt": b"first\n"})
    waiting = [agent.admit(f"waits {number} {'x' * 20_000}") for number in range(2)]
    agent.sleep()
    maker.close()
    reserve = disk / "home" / "journal.db-reserve"
    assert reserve.stat().st_size == RESERVE_BYTES
    ballast = fill(disk)
    home = ["--home", str(disk / "home")]
    assert main(["ps", *home]) == ExitCode.OK
    assert main(["verify", *home]) == ExitCode.OK
    for message in waiting:
        assert main(["drop", "counter/a", message.message_id, *home]) == ExitCode.OK
    assert main(["gc", "--now", *home]) == ExitCode.OK
    assert not reserve.exists()
    with closing(Home(disk / "home").journal()) as store:
        assert {store.message(each.message_id).status for each in waiting} == {MessageStatus.CANCELLED}
    fill(disk)  # what the reserve was
    capsys.readouterr()
    assert main(["fork", "counter/a", "b", *home]) in (ExitCode.OK, ExitCode.OS_ERROR)
    ballast.unlink()
    assert main(["fork", "counter/a", "c", *home]) == ExitCode.OK
    assert main(["verify", *home]) == ExitCode.OK
    assert reserve.stat().st_size == RESERVE_BYTES


def test_without_any_room_it_is_said_at_once(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maker = HomeMaker(disk / "home")
    agent = maker.agent("counter/a")
    agent.turn("one")
    agent.sleep()
    fill(disk)

    def admit_many() -> None:
        for _ in range(2_000):  # the log and the reserve take some hundred
            agent.admit("x" * 20_000)

    with pytest.raises(StorageRefused, match="is full"):
        admit_many()
    assert main(["fork", "counter/a", "b", "--home", str(disk / "home")]) == ExitCode.OS_ERROR
    assert "full" in capsys.readouterr().err
    maker.store.close()
    maker.blobs.close()


class Filler(BaseAgent):
    """Fills its disk when it is told to."""

    max_attempts = 2

    class State(DeltaState):
        _entity_type = "filler"
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        if message["text"] == "fill":
            with (ctx.workspace / "big").open("wb", buffering=0) as file:
                while True:
                    file.write(os.urandom(1 << 16))
        (ctx.workspace / "small").write_text(message["text"])


async def test_a_try_that_fills_the_disk_is_recorded_and_given_up(disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    home = Home(disk / "home").create()
    with closing(home.journal()) as store, closing(home.blobs()) as blobs:
        async with AgentHarness(
            Filler, store=store, blobs=blobs, options=HarnessOptions(directory=disk / "work")
        ) as agent:
            assert (await agent.send("hello")).ok
            answer = await agent.send("fill")
            assert answer.error is not None
            assert answer.error["type"] == "OSError"
            assert [payload["parked"] for _, payload in agent.events("turn.failed")] == [False, True]
            assert not (agent.workspace / "big").exists()
            assert (await agent.send("more")).ok
            assert agent.state == {"count": 2}
    assert main(["verify", "--home", str(home.path)]) == ExitCode.OK


def test_a_layer_that_fills_the_disk_is_given_up_by_the_next_epoch(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its host was killed in the middle; sealing what it left takes as much room again."""
    with closing(PackBlobStore(f"file://{disk}/blobs")) as blobs:
        first = open_api_workspace(LayerSpec("w", disk / "layers", None, 1, 1), blobs)
        first.write("kept", b"kept")
        first.write("again", b"one")
        base = first.seal()
        first.adopt(base)
        first.write("again", b"two")

        def write_many() -> None:
            for number in range(1000):
                first.write(f"big {number}", os.urandom(1 << 20))

        with pytest.raises(OSError, match="space"):
            write_many()
        first.close()
        fill(disk)
        with pytest.raises((StorageRefused, OSError)):  # not unasked: it may be what somebody wrote into a mount
            open_api_workspace(LayerSpec("w", disk / "layers", base, 2, 2), blobs)
        assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize < SIZE // 2
        second = open_api_workspace(LayerSpec("w", disk / "layers", base, 2, 2, gives_up_when_full=True), blobs)
        assert second.recovered is None
        assert "is given up" in caplog.text
        free = os.statvfs(disk)
        assert free.f_bavail * free.f_frsize > SIZE // 2
        assert second.read("kept") == b"kept"
        second.write("again", b"three")
        assert [version.iteration for version in second.history("again")] == [1, 3], "2 was given out before"
        second.close()
