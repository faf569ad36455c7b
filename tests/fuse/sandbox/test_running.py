"""How a command in a sandbox is refused, streamed, cancelled, and ended with whoever asked for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from podium.errors import CommandNotStarted, SandboxRefused
from podium.sandbox import probe as probing
from podium.sandbox import spawning
from podium.sandbox.on_rung import Stream, run_on
from podium.sandbox.policy import RUNGS, Ended, Limits, Policy, Rung
from podium.sandbox.protected import put_back, remember
from podium.sandbox.running import run
from tests.waiting import until, wait_until

OnOutput = Callable[[Stream, bytes], Awaitable[None]]


class Heard:
    """What a command has written so far."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Stream, bytes]] = []

    async def __call__(self, stream: Stream, piece: bytes) -> None:
        self.pieces.append((stream, piece))

    def text(self, stream: Stream) -> str:
        return b"".join(piece for name, piece in self.pieces if name == stream).decode()


async def on(rung: Rung, script: str, heard: OnOutput, **policy: Any) -> Ended:
    return await run_on(rung, ["sh", "-c", script], Policy(at_least="none", **policy), on_output=heard)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[Rung, str | None]:
    """What the probe has found, to be said by the test."""
    found: dict[Rung, str | None] = {}
    monkeypatch.setattr(probing, "_found", found)
    return found


@pytest.mark.parametrize("rung", RUNGS)
async def test_streams_status_and_environment(rung: Rung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "of the host")
    heard = Heard()
    script = 'echo "$API_KEY$GIVEN"; pwd; echo to stderr >&2; echo kept > file; echo gone > "$TMPDIR/file"; exit 7'
    ended = await on(rung, script, heard, writable=(tmp_path,), environment={"GIVEN": "given"})
    assert ended == Ended(7, None, rung, ())
    assert heard.text("stdout") == f"given\n{tmp_path}\n"
    assert heard.text("stderr") == "to stderr\n"
    assert (tmp_path / "file").read_text() == "kept\n"
    assert (await on(rung, "kill -9 $$", heard)).status == 128 + signal.SIGKILL


@pytest.mark.parametrize("rung", RUNGS)
async def test_output_comes_while_the_command_runs(rung: Rung, tmp_path: Path) -> None:
    heard = Heard()

    async def go_on(stream: Stream, piece: bytes) -> None:
        await heard(stream, piece)
        (tmp_path / "go").touch()

    await on(rung, "echo first; while [ ! -e go ]; do sleep 0.05; done; echo second", go_on, writable=(tmp_path,))
    assert heard.text("stdout") == "first\nsecond\n"


@pytest.mark.parametrize("rung", RUNGS)
async def test_a_cancelled_command_has_ended_when_that_is_raised(rung: Rung, tmp_path: Path) -> None:
    heard = Heard()
    script = "trap '' TERM; (while :; do echo x >> log; sleep 0.01; done) & echo up; wait"
    async with asyncio.TaskGroup() as group:
        task = group.create_task(on(rung, script, heard, writable=(tmp_path,)))
        await until((tmp_path / "log").exists)
        assert running_in(tmp_path)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not running_in(tmp_path)


async def test_an_error_of_who_listens_ends_the_command(tmp_path: Path) -> None:
    async def fail(_: Stream, __: bytes) -> None:
        raise ValueError("full")

    with pytest.raises(ValueError, match="full"):
        await on("landlock", "echo up; sleep 1000", fail)


@pytest.mark.parametrize("rung", RUNGS)
def test_kill_of_the_host_ends_its_commands(rung: Rung, tmp_path: Path) -> None:
    code = f"""if 1:
        import asyncio
        from pathlib import Path
        from tests.fuse.sandbox.test_running import Heard, on
        asyncio.run(on({rung!r}, "setsid sh -c 'while :; do echo x >> log; sleep 0.01; done' & wait", Heard(),
                       writable=(Path({str(tmp_path)!r}),)))"""
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}) as host:
        wait_until((tmp_path / "log").exists)
        spawners = children(host.pid)
        assert running_in(tmp_path)
        host.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in spawners), "its spawner goes on")
    wait_until(lambda: not running_in(tmp_path), "the command goes on")
    wait_until(lambda: not [*(tmp_path / "tmp").iterdir()], "its temporary directory stays")


def running_in(directory: Path) -> list[str]:
    """Return the processes whose working directory it is."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):  # it has ended
            if each.readlink() == directory:
                found.append(each.parent.name)
    return found


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def test_a_spawner_that_was_killed_is_replaced() -> None:
    assert (await on("none", "exit 1", Heard())).status == 1
    spawner = spawning._spawner
    assert spawner is not None
    supervisors = children(spawner._pid)
    for pid in [*supervisors, spawner._pid]:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in supervisors))
    await until(lambda: "Z" in Path(f"/proc/{spawner._pid}/stat").read_text().rpartition(")")[2])
    assert (await on("none", "exit 2", Heard())).status == 2


@pytest.mark.parametrize("variables", [1, 10], ids=["sent at once", "sent in part"])
async def test_supervisors_that_are_killed_before_they_have_read_a_command_are_replaced(
    variables: int, tmp_path: Path
) -> None:
    assert (await on("none", "exit 1", Heard())).status == 1
    spawner = spawning._spawner
    assert spawner is not None
    supervisors = children(spawner._pid)
    for pid in supervisors:
        os.kill(pid, signal.SIGSTOP)
    waiting = [*spawning._idle]
    environment = {f"V{number}": "." * 100_000 for number in range(variables)}
    running = asyncio.create_task(
        on("none", "echo once >> log", Heard(), writable=(tmp_path,), environment=environment)
    )
    await until(lambda: spawning._idle != waiting)
    for pid in supervisors:
        os.kill(pid, signal.SIGKILL)
    assert (await running).status == 0
    assert (tmp_path / "log").read_text() == "once\n"


async def test_a_command_whose_supervisor_is_killed_does_not_run_again(tmp_path: Path) -> None:
    running = asyncio.create_task(on("none", "echo once >> log; exec sleep 1000", Heard(), writable=(tmp_path,)))
    await until((tmp_path / "log").exists)
    spawner = spawning._spawner
    assert spawner is not None
    for pid in children(spawner._pid):
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(CommandNotStarted, match="its supervisor was killed"):
        await running
    assert (tmp_path / "log").read_text() == "once\n"


async def test_the_strongest_rung_that_works_is_used(found: dict[Rung, str | None]) -> None:
    for works, used in (((None, None, None), "bubblewrap"), ((None, None, "no"), "landlock")):
        found.update(zip(RUNGS, works, strict=True))
        assert (await run(["true"], Policy(at_least="none"), on_output=Heard())).rung == used


async def test_nothing_runs_weaker_than_asked(found: dict[Rung, str | None], tmp_path: Path) -> None:
    found |= {"none": None, "landlock": "an old kernel", "bubblewrap": "no user namespaces"}
    for at_least in ("landlock", "bubblewrap"):
        policy = Policy(writable=(tmp_path,), at_least=at_least)
        with pytest.raises(SandboxRefused, match=f"{at_least} or a stronger one, and nothing was run: .*no user names"):
            await run(["touch", "made"], policy, on_output=Heard())
        with pytest.raises(SandboxRefused, match="weaker"):
            await run_on("none", ["touch", "made"], policy, on_output=Heard())
    found["landlock"] = None
    (tmp_path / "kept").mkdir()
    beneath = Policy(writable=(tmp_path,), readable=(tmp_path / "kept",))
    with pytest.raises(SandboxRefused, match="bubblewrap or a stronger one"):
        await run(["touch", "made"], beneath, on_output=Heard())
    ended = await run_on("bubblewrap", ["touch", "made", "kept/made"], beneath, on_output=Heard())
    assert (ended.status, (tmp_path / "made").exists(), (tmp_path / "kept" / "made").exists()) == (1, True, False)


async def test_the_probe_runs_commands(found: dict[Rung, str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    assert await probing.probe() == dict.fromkeys(RUNGS)
    found.clear()
    monkeypatch.setattr(probing, "_COMMAND", ("/bin/sh", "-c", "echo not here >&2; exit 9"))
    monkeypatch.setattr(probing, "landlock_abi", lambda: 4)
    monkeypatch.setattr(probing, "bubblewrap", lambda: None)
    reasons = await probing.probe()
    assert "not here" in str(reasons["none"])
    assert "version 4 of Landlock, and version 6 is needed" in str(reasons["landlock"])
    assert "apt-get install bubblewrap" in str(reasons["bubblewrap"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"writable": (Path("relative"),)}, "absolute"),
        ({"readable": (Path("/a/../b"),)}, "absolute"),
        ({"readable": (Path("/"),)}, "whole machine"),
        ({"network": "proxy"}, "no network 'proxy'"),
        ({"at_least": "gvisor"}, "no sandbox 'gvisor'"),
        ({"environment": {"A=B": ""}}, "variable"),
    ],
)
def test_a_policy_that_nothing_keeps_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(SandboxRefused, match=said):
        Policy(**wrong)


def test_a_limit_is_more_than_nothing() -> None:
    with pytest.raises(SandboxRefused, match="time_s"):
        Limits(time_s=0)


async def test_what_is_not_there_is_said_before_anything_runs(tmp_path: Path) -> None:
    for policy in (Policy(writable=(tmp_path / "none",)), Policy(readable=(tmp_path / "none",))):
        with pytest.raises(SandboxRefused, match="none is to be"):
            await run(["true"], policy, on_output=Heard())
    with pytest.raises(CommandNotStarted, match="no program no-such-program"):
        await run(["no-such-program"], Policy(), on_output=Heard())
    (tmp_path / "closed").write_text("#!/bin/sh\n")
    (tmp_path / "closed").chmod(0o755)
    with pytest.raises(CommandNotStarted, match=r"\(landlock\): .*Permission denied"):
        await run_on("landlock", [str(tmp_path / "closed")], Policy(), on_output=Heard())


def test_start_files_are_put_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / ".profile").symlink_to("other")
    (tmp_path / ".bashrc").write_text("mine")
    (tmp_path / ".bashrc").chmod(0o640)
    before = remember([tmp_path])
    assert put_back(before) == ()
    (tmp_path / ".git").unlink()
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".profile").unlink()
    os.mkfifo(tmp_path / ".profile")
    with (tmp_path / ".bashrc").open("wb") as file:
        file.truncate(1 << 40)
    assert {each.name for each in put_back(before)} >= {".git", ".profile", ".bashrc"}
    assert (tmp_path / ".git").read_text() == "gitdir: elsewhere\n"
    assert (tmp_path / ".profile").readlink() == Path("other")
    assert ((tmp_path / ".bashrc").read_text(), (tmp_path / ".bashrc").stat().st_mode & 0o777) == ("mine", 0o640)


async def test_a_large_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_bytes(bytes(2 << 20))
    with pytest.raises(SandboxRefused, match="larger than 1 MiB"):
        await run(["true"], Policy(writable=(tmp_path,)), on_output=Heard())
