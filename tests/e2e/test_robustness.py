"""What goes wrong around an agent, or in it: processes that die, code that will not stop, bad requests."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus
from coordinator.home import Home
from coordinator.service.client import AgentRef, ServiceClient, ServiceError
from coordinator.service.connecting import connect
from tests.waiting import until

from .conftest import TIMEOUT_S, command, kill_at_once, processes_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .conftest import Podium

# The service outlives the client that started it, and is meant to.
pytestmark = pytest.mark.filterwarnings("ignore:.*Popen.__del__:pytest.PytestUnraisableExceptionWarning")

FILE = str(Path(__file__).parent / "troubled.py")
TROUBLED = AgentRef(FILE, "Troubled", "troubled")
SLEEPY = AgentRef(FILE, "Sleepy", "sleepy")


@pytest.fixture
async def client(podium: Podium, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServiceClient]:
    """A client of the home's service, in this process."""
    monkeypatch.setenv("PODIUM_TEST_HOME", str(podium.home))
    async with connect(Home(podium.home), on_progress=lambda _: None, on_notice=lambda _: None) as client:
        yield client


async def send(client: ServiceClient, key: str, text: str, agent: AgentRef = TROUBLED) -> list[dict[str, Any]]:
    """Send a message and return its frames."""
    async with asyncio.timeout(TIMEOUT_S):
        return [frame async for frame in client.send(agent, key, {"text": text})]


def pid_of(frames: list[dict[str, Any]]) -> int:
    """The agent's process, from its reply."""
    assert frames[-1]["type"] == "turn_end", frames
    return int(next(frame["text"] for frame in frames if frame["type"] == "message_end"))


def status_of(podium: Podium, message_id: str) -> MessageStatus:
    """Where a message stands, by the journal."""
    store = Home(podium.home).journal(read_only=True)
    try:
        return store.message(MessageId(message_id)).status
    finally:
        store.close()


async def test_actors_and_warm_hosts_may_die(podium: Podium, client: ServiceClient) -> None:
    pid = pid_of(await send(client, "a", "hi"))
    for number, actors in enumerate((["Coordinator"], ["NodeManager"], ["Coordinator", "NodeManager"])):
        kill_at_once([found for actor in actors for found in processes_of(podium, f"ray::{actor}Actor")])
        assert pid_of(await send(client, "a", "hi")) == pid
        pid_of(await send(client, f"new-{number}", "hi"))
    hosts = await client.ps()
    assert sorted(host["agent"] for host in hosts if host["agent"]) == [
        "troubled/a",
        *(f"troubled/new-{number}" for number in range(3)),
    ]
    busy = {pid, *[pid_of(await send(client, f"new-{number}", "hi")) for number in range(3)]}
    kill_at_once(await until(lambda: [found for found in processes_of(podium, "ray::HostActor") if found not in busy]))
    pid_of(await send(client, "last", "hi"))
    assert podium.lines("log", "troubled/last")[-1]["type"] == "turn.committed"
    assert not [event for event in podium.lines("log", "troubled/last") if event["type"] == "turn.failed"]


async def test_a_host_that_dies_while_it_imports_the_agent_is_replaced(client: ServiceClient, tmp_path: Path) -> None:
    file, died = tmp_path / "dies.py", tmp_path / "died"
    dies = f"import os, pathlib\n\ndied = pathlib.Path({str(died)!r})\n"
    dies += "if not died.exists():\n    died.touch()\n    os._exit(9)\n"
    code = "from __future__ import annotations\n"
    file.write_text(Path(FILE).read_text().replace(code, code + dies, 1))
    pid_of(await send(client, "a", "hi", AgentRef(str(file), "Troubled", "troubled")))
    assert died.exists()


async def test_the_mount_service_may_die(podium: Podium, client: ServiceClient) -> None:
    for key in ("a", "b"):
        pid_of(await send(client, key, "hi"))
    kill_at_once(processes_of(podium, "chronicle.fuse.zygote.main"))
    for key in ("c", "a", "b", "c", "a"):
        pid_of(await send(client, key, "hi"))
    for key, count in (("a", 3), ("b", 2), ("c", 2)):
        assert podium("cat", f"troubled/{key}", "who.txt").stdout == f"{key} {count}\n"
    assert podium("verify").returncode == 0


async def test_a_message_meets_an_agent_that_goes_to_zero(podium: Podium, client: ServiceClient) -> None:
    for delay_ms in (190, 210, 230, 250, 300, 400, 450, 500, 520, 550):  # it sleeps after some 500
        assert (await send(client, "z", "hi", SLEEPY))[-1]["type"] == "turn_end"
        await asyncio.sleep(delay_ms / 1000)
    assert podium.json("state", "sleepy/z")["state"] == {"count": 10}
    assert "turn.failed" not in [event["type"] for event in podium.lines("log", "sleepy/z")]


async def test_cancelling_stops_code_that_blocks_and_nothing_else(podium: Podium, client: ServiceClient) -> None:
    accepted = asyncio.Event()

    async def goes_on_to_its_end() -> list[str]:
        types = []
        async for frame in client.send(TROUBLED, "b", {"text": "sleep past the grace"}):
            types.append(frame["type"])
            accepted.set()
        return types

    async def cancelled(key: str, text: str) -> dict[str, Any]:
        last: dict[str, Any] = {}
        async for last in client.send(TROUBLED, key, {"text": text}):
            if last["type"] == "accepted":
                await asyncio.sleep(1)
                await client.cancel(f"troubled/{key}", last["message_id"])
                # It is durable now, whatever becomes of the service.
                assert status_of(podium, last["message_id"]) is MessageStatus.CANCELLED
        return last

    await send(client, "a", "hi")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        blocked = tasks.create_task(cancelled("a", "block"))
        goes_on = tasks.create_task(goes_on_to_its_end())
        await accepted.wait()
        waits = tasks.create_task(cancelled("b", "hi"))
    assert blocked.result()["error"]["type"] == waits.result()["error"]["type"] == "Cancelled"
    assert goes_on.result()[-1] == "turn_end"
    assert podium.json("state", "troubled/a")["state"] == {"count": 1}
    assert podium.json("state", "troubled/b")["state"] == {"count": 1}


async def test_code_that_ends_its_process_or_its_loop_parks_its_message(client: ServiceClient) -> None:
    for text, error in (("interrupt", "KeyboardInterrupt"), ("exit", "HostLost")):
        last = (await send(client, "a", text))[-1]
        assert (last["type"], last["error"]["type"], last["parked"]) == ("error", error, True)
    assert (await send(client, "a", "hi"))[-1]["type"] == "turn_end"


async def test_malformed_requests_hurt_nobody(podium: Podium, client: ServiceClient) -> None:
    socket = str(Home(podium.home).socket_path)

    async def answer(line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(line + b"\n")
        try:
            return await asyncio.wait_for(reader.readline(), TIMEOUT_S)
        finally:
            writer.close()

    for line in (b"no json", b"5", b"[1]", b"[" * 100_000, b'{"op":"hello"}'):
        assert await answer(line) == b""
    good = {"file": FILE, "class": "Troubled", "agent_type": "troubled"}
    for request, kind in (
        ({}, "PodiumError"),
        ({"op": "send"}, "InvalidInput"),
        ({"op": "send", "agent": {**good, "file": 5}, "key": "a", "message": {}}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": 5, "message": {}}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": "../a", "message": {}}, "InvalidAddress"),
        ({"op": "send", "agent": good, "key": "a", "message": ["no object"]}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": "a", "message": {"text": float("nan")}}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": "a", "message": {}, "when_busy": "shout"}, "InvalidInput"),
        ({"op": "cancel", "agent": "troubled/none", "message_id": "msg_unknown"}, "UnknownAgent"),
        ({"op": "rewind", "agent": "troubled/none", "turn": "1"}, "InvalidInput"),
        ({"op": "rewind", "agent": "troubled/none", "turn": 1}, "UnknownAgent"),
        ({"op": "passivate", "agent": "nobody"}, "InvalidAddress"),
    ):
        refused = json.loads(await answer(json.dumps({"id": 1, **request}).encode()))
        assert (refused["id"], refused["error"]["type"]) == (1, kind)
    assert (await send(client, "a", "x" * 10_000_000))[-1]["type"] == "turn_end"


async def test_a_service_that_is_told_to_end_ends_the_turn_first_and_then_lets_its_clients_go(
    podium: Podium, client: ServiceClient
) -> None:
    await send(client, "a", "hi")
    (service,) = processes_of(podium, "coordinator.service.daemon")

    async def end_it_in_the_middle() -> str:
        frame = {}
        async for frame in client.send(TROUBLED, "a", {"text": "sleep past the grace"}):
            if frame["type"] == "turn_start":
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    os.kill(service, number)
        return str(frame["type"])

    assert await asyncio.wait_for(end_it_in_the_middle(), TIMEOUT_S) == "turn_end"
    await asyncio.wait_for(client.wait_lost(), TIMEOUT_S)
    with pytest.raises(ServiceError, match="accepted messages are kept"):
        await client.ps()
    await asyncio.to_thread(podium, "run", f"{FILE}:Troubled", "--key", "a", "--message", "hi")
    assert podium.json("state", "troubled/a")["state"] == {"count": 3}
    assert "turn.failed" not in [event["type"] for event in podium.lines("log", "troubled/a")]


async def test_a_service_that_hangs_is_not_waited_for(
    podium: Podium, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, "a", "hi")
    (service,) = processes_of(podium, "coordinator.service.daemon")
    os.kill(service, signal.SIGSTOP)
    try:
        with monkeypatch.context() as hasty:
            hasty.setattr("coordinator.service.client._BEAT_S", 0.5)
            hasty.setattr("coordinator.service.client._SILENT_S", 1.0)
            with pytest.raises(ServiceError, match="it hangs; accepted messages are kept"):
                await send(client, "a", "hi")
    finally:
        os.kill(service, signal.SIGCONT)
    while (await send(client, "a", "hi"))[-1]["type"] != "turn_end":
        pass
    assert podium.json("state", "troubled/a")["state"] == {"count": 3}


def test_without_dev_fuse_it_says_so_once_and_runs(podium: Podium, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("taking /dev/fuse away takes a mount namespace of one's own, and so root")
    plain = tmp_path / "fuse"
    plain.touch()
    run = [*command(), "run", f"{FILE}:Troubled", "--home", str(podium.home), "--message", "hi", "--message", "again"]
    script = f'mount --make-rprivate / && mount --bind "{plain}" /dev/fuse && exec "$@"'
    finished = subprocess.run(
        [unshare, "-m", "sh", "-c", script, "sh", *run],
        env=podium.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("workspaces are plain directories") == 1
    assert podium("cat", "troubled/default", "who.txt@1").stdout == "default 1\n"
    assert podium("cat", "troubled/default", "who.txt").stdout == "default 2\n"
