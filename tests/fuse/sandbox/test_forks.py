"""Commands on forks of a workspace: what they change is seen, and kept or dropped, without a second run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.opening import open_blobs
from chronicle.errors import Conflict, InvalidInput, NotFound
from chronicle.fuse.mountpoints import mountinfo, mounts
from chronicle.fuse.server.client import unmount_workspace
from chronicle.fuse.zygote import launcher
from coordinator.host.node.layers import clear_forks
from podium.agent import AgentContext, BaseAgent
from podium.agent.commands import FileChange, Tried
from podium.errors import ContextMisuse
from podium.history.reachability import reachable_blobs
from podium.sandbox.policy import Policy
from podium.testing import AgentHarness
from tests.unit.coordinator.host.test_mounting import mounting
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.workspace.port import Opened, Workspace
    from coordinator.host.mounting import Mounting
    from podium.turn.ports import WorkspaceRequest

BEFORE = {"changed": "one\n", "removed": "gone\n", "moved": "same\n"}
SCRIPT = "echo new > new; echo two > changed; rm removed; mkdir dir; mv moved dir/; exit 3"
AFTER = {"changed": "two\n", "new": "new\n", "dir/moved": "same\n"}


class Trier(BaseAgent):
    """Does what its test says, with files."""

    max_attempts = 3
    program: ClassVar[Any]

    async def on_init(self, ctx: AgentContext[Any]) -> None:
        for name, text in BEFORE.items() if not any(ctx.workspace.iterdir()) else ():
            (ctx.workspace / name).write_text(text)

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        await type(self).program(ctx)


class Hosted(AgentHarness):
    """Opens workspaces and forks as the process of a host does."""

    mounting: Mounting

    async def _open_workspace(self, request: WorkspaceRequest) -> Opened:
        path = self.mounting.claim(request)
        return await asyncio.to_thread(self.mounting.open, request, None, path)

    @contextmanager
    def _open_fork(self, request: WorkspaceRequest) -> Iterator[Workspace]:
        with self.mounting.fork(request, None) as fork:
            yield fork


def hosted(presentation: str, directory: Path, blobs: BlobStore) -> type[AgentHarness]:
    class Here(Hosted):
        def __init__(self, agent_class: type[BaseAgent]) -> None:
            super().__init__(agent_class, blobs=blobs)
            self.mounting = mounting(
                directory,
                "host_1",
                presentation=presentation,
                blobs_url=f"file://{directory}/blobs",
                zygote_socket=str(directory / "run" / "zygote.sock"),
            )

    return Here


@pytest.fixture(params=["harness", "dir", "fuse"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[type[AgentHarness]]:
    """The workspaces of a harness, and those of hosts of each presentation."""
    if request.param == "harness":
        yield AgentHarness
        return
    socket = tmp_path / "run" / "zygote.sock"
    for name in ("run", "blobs"):
        (tmp_path / name).mkdir()
    with ExitStack() as at_end:
        blobs = at_end.enter_context(closing(open_blobs(f"file://{tmp_path}/blobs")))
        if request.param == "fuse":
            launcher.start(socket, tmp_path, tmp_path / "log", os.getpid(), few_mounts=True)
            at_end.callback(mounts.unmount_all_under, tmp_path)
            at_end.callback(launcher.shut_down, socket)

        yield hosted(request.param, tmp_path, blobs)
        left = [*tmp_path.glob("layers/fork.*"), *tmp_path.glob("podium-home/fork.*")]
        assert not left, "forks are removed at their end"


def files_in(root: Path) -> dict[str, str]:
    found = [path for path in root.rglob("*") if path.is_file() and ".chronicle" not in path.parts]
    return {str(path.relative_to(root)): path.read_text() for path in found}


async def tried_in(ctx: AgentContext[Any], text: str = SCRIPT, **options: Any) -> Tried:
    return await ctx.run(["sh", "-c", text], on="fork", **options)


async def test_a_fork_shows_what_a_command_changed_and_is_dropped(harness: type[AgentHarness]) -> None:
    tried: list[Tried] = []

    async def program(ctx: AgentContext[Any]) -> None:
        (ctx.workspace / "of the hook").write_text("before the fork\n")
        tried.append(await tried_in(ctx, f"cat 'of the hook'; ls {ctx.workspace}; {SCRIPT}"))
        assert files_in(ctx.workspace) == {**BEFORE, "of the hook": "before the fork\n"}
        (found,) = tried
        assert await found.diff("changed") == (
            "diff a/changed b/changed\n--- a/changed\n+++ b/changed\n@@ -1 +1 @@\n-one\n+two\n"
        )
        assert "rename from moved\nrename to dir/moved\n" in await found.diff()
        with pytest.raises(NotFound, match="'of the hook'"):
            await found.diff("of the hook")

    Trier.program = program
    async with harness(Trier) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error
        assert files_in(agent.workspace) == {**BEFORE, "of the hook": "before the fork\n"}
    (found,) = tried
    assert (found.status, found.ok) == (3, False)
    assert found.stdout == "before the fork\n"
    assert "Permission denied" in found.stderr or "No such file" in found.stderr, "the workspace itself is out of reach"
    assert found.changes == (
        FileChange("changed", "changed", 4, 4),
        FileChange("added", "dir", None, None),
        FileChange("renamed", "dir/moved", 5, 5, "moved"),
        FileChange("added", "new", None, 4),
        FileChange("removed", "removed", 5, None),
    )
    with pytest.raises(ContextMisuse, match="is over"):
        await found.keep()


async def test_a_fork_is_kept_without_a_second_run(harness: type[AgentHarness]) -> None:
    said: list[str] = []
    attempts: list[Tried] = []

    async def note(_stream: str, text: str) -> None:
        said.append(text)

    async def program(ctx: AgentContext[Any]) -> None:
        attempts.append(tried := await tried_in(ctx, f"echo ran; {SCRIPT}", on_output=note))
        if len(attempts) == 1:
            raise ConnectionError("between the command and keep")
        assert files_in(ctx.workspace) == BEFORE
        await tried.keep()
        assert files_in(ctx.workspace) == AFTER
        if len(attempts) == 2:
            (ctx.workspace / "new").unlink()
            raise ConnectionError("behind keep")
        await ctx.step("later", (ctx.workspace / "later").write_text, "x")

    async def drop(ctx: AgentContext[Any]) -> None:
        assert (await tried_in(ctx, "rm *; mkdir dropped")).changes

    Trier.program = program
    async with harness(Trier) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error
        assert files_in(agent.workspace) == {**AFTER, "later": "x"}
        assert [attempt == attempts[0] for attempt in attempts] == [True] * 3, "each attempt gets the same"
        await agent.kill()
        Trier.program = drop
        assert (await agent.send("again")).ok
        assert files_in(agent.workspace) == {**AFTER, "later": "x"}, "from what was committed, and nothing else"
    assert said == ["ran\n"]


async def test_a_fork_is_not_kept_over_what_was_changed_since(harness: type[AgentHarness]) -> None:
    refused: list[str] = []

    async def refused_by(tried: Tried) -> None:
        with pytest.raises(Conflict) as error:
            await tried.keep()
        refused.append(str(error.value))

    async def program(ctx: AgentContext[Any]) -> None:
        go, begun = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            begun.set()
            await go.wait()
            (ctx.workspace / "beside").write_text("by a parallel step")

        async with asyncio.TaskGroup() as group:
            beside = group.create_task(ctx.step("beside", write))
            await begun.wait()
            tried = await tried_in(ctx)
            await refused_by(tried)  # while the step runs
            go.set()
            await beside
            await refused_by(tried)  # the step has written
        assert files_in(ctx.workspace) == {**BEFORE, "beside": "by a parallel step"}
        await (await tried_in(ctx)).keep()
        assert files_in(ctx.workspace) == {**AFTER, "beside": "by a parallel step"}

    Trier.program = program
    async with harness(Trier) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error
        assert files_in(agent.workspace) == {**AFTER, "beside": "by a parallel step"}
    because = [
        "step 'beside#1' runs, and may change the files of the agent",
        "the files of the agent have changed since",
    ]
    assert refused == [
        f"what 'run sh' did on a fork cannot be kept, as {reason}; run it again, on a new fork" for reason in because
    ]


async def test_a_tool_keeps_a_fork_and_several_are_open_at_a_time(harness: type[AgentHarness]) -> None:
    async def program(ctx: AgentContext[Any]) -> None:
        async def tool() -> str:
            one, other = await asyncio.gather(
                tried_in(ctx, "echo 1 > it", step=False), tried_in(ctx, "echo 2 > it; pwd", step=False)
            )
            await one.keep()
            with pytest.raises(Conflict):
                await other.keep()
            return (await ctx.run(["cat", "it"])).stdout

        assert await ctx.step("tool", tool) == "1\n"

    Trier.program = program
    async with harness(Trier) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error
        assert files_in(agent.workspace) == {**BEFORE, "it": "1\n"}


async def test_gc_leaves_the_fork_of_a_message_that_is_not_settled() -> None:
    async def program(ctx: AgentContext[Any]) -> None:
        tried = await tried_in(ctx)
        await ctx.decide({"type": "boolean"}, reason="keep it?")
        await tried.keep()

    Trier.program = program
    async with AgentHarness(Trier) as agent:
        asked = await agent.send("go")
        kept = {blob: agent.blobs.get(blob) for blob in reachable_blobs(agent.store, agent.blobs, [])}
        await agent.kill()
        agent.blobs = MemoryBlobStore()
        agent.blobs.put(kept)
        answer = await agent.resume(asked.receipt.message_id, True)
        assert answer.ok, answer.error
        assert files_in(agent.workspace) == AFTER


async def test_what_a_fork_refuses() -> None:
    class Open(Trier):
        sandbox = Policy(network="open", at_least="none")

    async def program(ctx: AgentContext[Any]) -> None:
        with pytest.raises(InvalidInput, match="has no network"):
            await tried_in(ctx, network="open")
        with pytest.raises(InvalidInput, match="on='workspace' or on='fork', not 'tree'"):
            await ctx.run(["true"], on="tree")  # type: ignore[call-overload]
        tried = await tried_in(ctx, "cat /proc/net/dev; exec 3<>/dev/tcp/127.0.0.1/9")
        assert tried.rung != "none"

    Trier.program = program
    async with AgentHarness(Open) as agent:
        answer = await agent.send("go")
        assert answer.ok, answer.error


def test_what_a_killed_host_leaves_of_a_fork_is_found_by_the_path_of_the_workspace(tmp_path: Path) -> None:
    socket, paths, layers = tmp_path / "run" / "zygote.sock", tmp_path / "podium-home", tmp_path / "layers"
    for name in ("run", "blobs"):
        (tmp_path / name).mkdir()
    code = f"""if 1:
        import asyncio
        from pathlib import Path
        from tests.fuse.sandbox.test_forks import run_for_ever
        asyncio.run(run_for_ever(Path({str(tmp_path)!r})))"""
    launcher.start(socket, tmp_path, tmp_path / "log", os.getpid(), few_mounts=True)
    try:
        with subprocess.Popen([sys.executable, "-c", code]) as host:
            try:
                wait_until(lambda: is_up(paths) or host.poll() is not None)
                assert host.poll() is None
            finally:
                host.kill()
        (fork,) = paths.glob("fork.*")
        wait_until(lambda: not mountinfo.is_mounted(fork), "the mount ends with its host")
        (path,) = [each for each in paths.iterdir() if each != fork]
        assert (layers / fork.name).is_dir()

        def unmount(at: Path) -> None:
            with suppress(NotFound):
                unmount_workspace(socket, at)

        clear_forks(layers, path, unmount)
        assert not [*layers.glob("fork.*"), *paths.glob("fork.*")]
        assert [each.name.split("-")[0] for each in layers.iterdir()] == ["trier"], "the workspace itself stays"
    finally:
        launcher.shut_down(socket)
        mounts.unmount_all_under(tmp_path)


def is_up(paths: Path) -> bool:
    with suppress(OSError):  # the mount is being made
        return any((at / "up").exists() for at in paths.glob("fork.*"))
    return False


async def run_for_ever(directory: Path) -> None:
    """Run a command on a fork in a mount, as the process of a host, until it is killed."""

    async def program(ctx: AgentContext[Any]) -> None:
        await tried_in(ctx, "touch up; sleep 1000")

    Trier.program = program
    with closing(open_blobs(f"file://{directory}/blobs")) as blobs:
        async with hosted("fuse", directory, blobs)(Trier) as agent:
            await agent.send("go")
