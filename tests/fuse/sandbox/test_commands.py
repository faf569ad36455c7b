"""Commands of agents: steps of a turn, whose output is streamed and recorded, and that end with it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from chronicle.blobs.opening import open_blobs
from chronicle.clock import ManualClock
from chronicle.fuse.mountpoints import mounts
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.journal.opening import open_journal
from chronicle.workspace.port import LayerSpec, Opened
from podium.agent import AgentContext, BaseAgent
from podium.agent.commands import Command, Ran
from podium.errors import SandboxRefused
from podium.sandbox import probe as probing
from podium.sandbox.policy import RUNGS, Limits, Policy, Rung
from podium.testing import AgentHarness, HarnessOptions
from podium.turn.ports import WorkspaceRequest
from tests.fuse.sandbox.test_running import running_in
from tests.waiting import until, wait_until


class Runner(BaseAgent):
    """Does what its test says."""

    max_attempts = 2
    program: ClassVar[Any]
    ran: ClassVar[list[Ran]] = []

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        self.ran.append(await type(self).program(ctx))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Runner.ran = []


def script(text: str, **options: Any) -> Any:
    async def program(ctx: AgentContext[Any]) -> Ran:
        ran: Ran = await ctx.run(["sh", "-c", text], **options)
        return ran

    return program


def events(frames: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(frame["name"], frame["data"]) for frame in frames if frame["type"] == "event"]


async def test_a_command_that_has_ended_does_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "of the host")

    async def program(ctx: AgentContext[Any]) -> Ran:
        ran = await ctx.run(
            ["sh", "-c", 'cat > file; echo "$API_KEY$GIVEN $PWD"; seq 20000 >&2; exit 3'],
            stdin="given\n",
            env={"GIVEN": "by the call"},
            cwd="sub",
        )
        if len(Runner.ran) == 0:
            Runner.ran.append(ran)
            (ctx.workspace / "sub" / "file").write_text("by the attempt that fails")
            raise ConnectionError("the attempt fails")
        assert (ctx.workspace / "sub" / "file").read_text() == "given\n"
        return ran

    class Made(Runner):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            assert (await ctx.run(["mkdir", "sub"], step=False)).ok

    Runner.program = program
    async with AgentHarness(Made) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error
        first, second = Runner.ran
        assert first == second
        assert (first.status, first.ok, first.limit) == (3, False, None)
        assert first.stdout.startswith("by the call /")
        assert first.stdout.endswith("/sub\n")
        assert first.stdout_artifact is None
        assert first.stderr_artifact is not None
        assert agent.artifact(first.stderr_artifact) == "".join(f"{n + 1}\n" for n in range(20_000)).encode()
        assert first.stderr.startswith("1\n2\n")
        assert first.stderr.endswith("\n20000\n")
        assert f"left out; all of it is in artifact {first.stderr_artifact}" in first.stderr
        assert [artifact.name for artifact in agent.artifacts()] == ["run_sh.stderr.txt"]
        told = [(name, data) for name, data in events(answer.frames) if data["command_id"] == "run sh#1"]
    assert [name for name, _ in told if name != "podium.command_output"] == [
        "podium.command_start",
        "podium.command_end",
    ]
    assert told[0][1]["argv"][:2] == ["sh", "-c"]
    assert {"command_id": "run sh#1", "stream": "stdout", "text": first.stdout} in [data for _, data in told]
    assert told[-1][1] == {"command_id": "run sh#1", "status": 3, "limit": None, "rung": first.rung}


async def test_a_command_in_a_mount_is_put_back_like_any_step(tmp_path: Path) -> None:
    socket, log, mounted = tmp_path / "run" / "zygote.sock", tmp_path / "log", tmp_path / "mounts" / "w"
    for name in ("run", "mounts", "blobs"):
        (tmp_path / name).mkdir()
    launcher.start(socket, tmp_path / "mounts", log, os.getpid(), few_mounts=True)

    class Mounted(AgentHarness):
        async def _open_workspace(self, request: WorkspaceRequest) -> Opened:
            spec = LayerSpec("w", tmp_path / "layers", request.base, request.epoch, request.turn)
            return await asyncio.to_thread(open_fuse_workspace, socket, spec, f"file://{tmp_path}/blobs", mounted)

    async def program(ctx: AgentContext[Any]) -> Ran:
        ran = await ctx.run(["sh", "-c", "git init -q . && echo by the command > file && readlink /proc/self/cwd"])
        Runner.ran.append(ran)
        assert (ctx.workspace / "file").read_text() == "by the command\n"
        assert not (ctx.workspace / ".git" / "hooks").exists()
        if len(Runner.ran) == 1:
            (ctx.workspace / "file").unlink()
            raise ConnectionError("the attempt fails")
        return ran

    Runner.program = program
    try:
        async with Mounted(Runner) as agent:
            answer = await agent.send("go")
            assert answer.ok, answer.error
        first, second, _ = Runner.ran
        assert first == second
        assert (first.stdout, first.restored) == (f"{mounted}\n", (".git/hooks",))
    finally:
        launcher.shut_down(socket)
        mounts.unmount_all_under(tmp_path)


async def test_output_comes_while_the_command_runs() -> None:
    pieces: list[str] = []

    async def program(ctx: AgentContext[Any]) -> Ran:
        async def go_on(stream: str, text: str) -> None:
            assert stream == "stdout"
            pieces.append(text)
            if "".join(pieces) == "first ü\n":
                (ctx.workspace / "go").touch()

        text = r"printf 'first \303'; sleep 0.1; printf '\274\n'; until [ -e go ]; do sleep 0.05; done"

        async def inner() -> str:
            return (await ctx.run(["sh", "-c", text], on_output=go_on)).stdout

        assert await ctx.step("inside", inner) == "first ü\n"
        return await ctx.run(["true"])

    Runner.program = program
    async with AgentHarness(Runner) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error
        ids = [data["command_id"] for _, data in events(answer.frames)]
        assert ids == ["inside#1", "inside#1", "run true#1", "run true#1"], "output goes to the program alone"
    assert "".join(pieces) == "first ü\n"


@pytest.mark.parametrize("how", ["cancelled", "deadline", "killed"])
async def test_a_command_ends_with_its_turn(how: str) -> None:
    class Short(Runner):
        turn_timeout_s = 3.0 if how == "deadline" else 600.0
        max_attempts = 1

    Runner.program = script("trap '' TERM; touch up; (setsid sleep 1000 &); sleep 1000")
    async with AgentHarness(Short) as agent:
        receipt = agent.admit("go")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(agent.activation.handle_next())
            if how != "deadline":
                await until((agent.workspace / "up").exists)
                assert running_in(agent.workspace)
            if how == "cancelled":
                await agent.activation.cancel(receipt.message_id)
            elif how == "killed":
                running.cancel()
        assert not running_in(agent.workspace)
        assert not Runner.ran
        if how != "killed":
            assert not (agent.workspace / "up").exists(), "the turn is rolled back"


async def test_limits_end_a_command() -> None:
    class Limited(Runner):
        sandbox = Policy(limits=Limits(output_bytes=1 << 20))
        max_artifact_bytes = 300_000

    Runner.program = script("yes; sleep 1000")
    async with AgentHarness(Limited) as agent:
        assert (await agent.send("go")).ok
        (artifact,) = agent.artifacts()
        assert artifact.size_bytes == 300_000, "no more than an artifact can have"
        Runner.program = script("trap '' TERM; sleep 1000", timeout="0.1s")
        assert (await agent.send("go")).ok
    assert [ran.limit for ran in Runner.ran] == ["output", "time"]


async def test_a_repository_that_a_command_makes_works_and_runs_nothing() -> None:
    Runner.program = script(
        "git init -q . && git remote add origin https://example.com/a.git && git config core.fsmonitor evil &&"
        "echo evil > .git/hooks/post-commit && chmod +x .git/hooks/post-commit && echo text > file && git add file &&"
        "git -c user.name=a -c user.email=b -c core.fsmonitor= -c core.hooksPath=/ commit -qm first"
    )
    async with AgentHarness(Runner) as agent:
        assert (await agent.send("go")).ok
        assert Runner.ran[0].ok, Runner.ran[0].stderr
        assert {".git/hooks", ".git/config"} <= {*Runner.ran[0].restored}
        assert not (agent.workspace / ".git" / "hooks").exists()
        assert "evil" not in (agent.workspace / ".git" / "config").read_text()
        Runner.program = script("git remote get-url origin && git log --format=%s && git status --short")
        assert (await agent.send("go")).ok
    assert Runner.ran[1].stdout == "https://example.com/a.git\nfirst\n"


@pytest.mark.parametrize("declared", ["bubblewrap", Policy(at_least="bubblewrap")])
async def test_a_message_is_refused_where_its_sandbox_does_not_work(
    declared: Rung | Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strict(Runner):
        sandbox = declared
        max_attempts = 5

    monkeypatch.setattr(probing, "_found", dict(zip(RUNGS, (None, None, "no user namespaces"), strict=True)))
    Runner.program = script("true")
    async with AgentHarness(Strict) as agent:
        answer = await agent.send("go")
        assert answer.error == {
            "type": "SandboxRefused",
            "message": "the command asks for the sandbox bubblewrap or a stronger one, and nothing was run: "
            "bubblewrap does not work here: no user namespaces",
        }
        assert (answer.frames[-1]["parked"], len(events(answer.frames))) == (True, 0)
    async with AgentHarness(Runner) as agent:
        Runner.program = script("true", sandbox="bubblewrap")
        assert (await agent.send("go")).error is not None, "the call alone may ask for more"
    assert not Runner.ran


def test_a_call_does_not_weaken_what_its_class_declares(tmp_path: Path) -> None:
    declared = Policy(readable=(Path("/opt"),), environment={"A": "1", "B": "1"}, at_least="bubblewrap")
    made = Command(argv=["x"], sandbox="none", env={"B": "2"}, readable=["/srv"], timeout=5).policy(
        declared, tmp_path, 100
    )
    assert made.at_least == "bubblewrap"
    assert made.writable == (tmp_path,)
    assert made.readable == (Path("/opt"), Path("/srv"))
    assert dict(made.environment) == {"A": "1", "B": "2", "AGENT_WORKSPACE": str(tmp_path)}
    assert (made.limits.time_s, made.limits.output_bytes, made.network) == (5.0, 100, "none")
    assert Command(argv=["x"], sandbox="bubblewrap").policy(Policy(), tmp_path, 100).at_least == "bubblewrap"
    with pytest.raises(SandboxRefused, match="absolute"):
        Command(argv=["x"], readable=["srv"]).policy(declared, tmp_path, 100)


def test_nothing_of_a_command_stays_after_kill_9_of_its_host(tmp_path: Path) -> None:
    for name in ("tmp", "blobs"):
        (tmp_path / name).mkdir()
    code = f"""if 1:
        import asyncio
        from tests.fuse.sandbox.test_commands import Runner, send_in, script
        Runner.program = script(
            "git init -q .; echo evil > .git/hooks/post-commit; echo evil > .envrc; touch up; sleep 1000"
        )
        asyncio.run(send_in({str(tmp_path)!r}, 0))"""
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}) as host:
        wait_until(lambda: (tmp_path / "files" / "up").exists() or host.poll() is not None)
        assert host.poll() is None
        host.kill()
    assert (tmp_path / "files" / ".git" / "hooks" / "post-commit").exists(), "nobody has put it back"
    Runner.program = script("ls -A")
    asyncio.run(send_in(str(tmp_path), 3_600_000))
    assert [ran.stdout for ran in Runner.ran] == ["", ""], "for the message that was lost, and for the next one"
    assert not [*(tmp_path / "files").iterdir()]
    wait_until(lambda: not [*(tmp_path / "tmp").glob("podium-sandbox-*")], "its temporary directory stays")


async def send_in(directory: str, later_ms: int) -> None:
    """Send a message to an agent whose journal, blobs and files outlive this process."""
    with (
        closing(open_journal(f"{directory}/journal.db")) as store,
        closing(open_blobs(f"file://{directory}/blobs")) as blobs,
    ):
        clock, options = ManualClock(1_700_000_000_000 + later_ms), HarnessOptions(directory=Path(directory))
        async with AgentHarness(Runner, store=store, blobs=blobs, clock=clock, options=options) as agent:
            await agent.send("go")
