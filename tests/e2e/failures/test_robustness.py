"""What goes wrong around an agent, or in it: processes that die, code that will not stop, bad requests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.ids import MessageId
from chronicle.journal.records import MessageStatus
from coordinator.channel import read_packet
from coordinator.home import Home
from coordinator.service.client import AgentRef, ServiceClient, ServiceError
from tests.e2e.conftest import AGENTS, TIMEOUT_S, client_of, command, kill_at_once, processes_of
from tests.waiting import until, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.e2e.conftest import Podium

# The service outlives the client that started it, and is meant to.
pytestmark = pytest.mark.filterwarnings("ignore:.*Popen.__del__:pytest.PytestUnraisableExceptionWarning")

FILE = str(AGENTS / "troubled.py")
TROUBLED = AgentRef(FILE, "Troubled", "troubled")
SLEEPY = AgentRef(FILE, "Sleepy", "sleepy")


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


async def test_actors_and_warm_hosts_may_die(served: Podium, client: ServiceClient) -> None:
    pid = pid_of(await send(client, "kept", "hi"))
    for number, actors in enumerate((["Coordinator"], ["NodeManager"], ["Coordinator", "NodeManager"])):
        kill_at_once([found for actor in actors for found in processes_of(served, f"ray::{actor}Actor")])
        assert pid_of(await send(client, "kept", "hi")) == pid
        pid_of(await send(client, f"new-{number}", "hi"))
    hosts = await client.ps()
    assert sorted(host["agent"] for host in hosts if host["agent"]) == [
        "troubled/kept",
        *(f"troubled/new-{number}" for number in range(3)),
    ]
    busy = {pid, *[pid_of(await send(client, f"new-{number}", "hi")) for number in range(3)]}
    kill_at_once(await until(lambda: [found for found in processes_of(served, "ray::HostActor") if found not in busy]))
    pid_of(await send(client, "last", "hi"))
    assert served.lines("log", "troubled/last")[-1]["type"] == "turn.committed"
    assert not [event for event in served.lines("log", "troubled/last") if event["type"] == "turn.failed"]


async def test_processes_that_die_between_messages_are_noticed_at_once(served: Podium, client: ServiceClient) -> None:
    pid = pid_of(await send(client, "idle", "hi"))
    async with asyncio.timeout(TIMEOUT_S):
        hosts = await client.ps()
        while {host["status"] for host in hosts} != {"warm", "assigned"}:
            await asyncio.sleep(0.01)
            hosts = await client.ps()
    awaited = "shared"  # an answer of such a host is awaited, so that Ray may report its death first
    warm = [host["host_id"] for host in hosts if host["status"] == "warm" and host["isolation"] != awaited]
    kill_at_once(processes_of(served, "ray::HostActor"))
    async with asyncio.timeout(TIMEOUT_S):
        while {host["host_id"] for host in await client.ps()} & {host["host_id"] for host in hosts}:
            await asyncio.sleep(0.01)  # nobody has sent anything
    log = (served.home / "logs" / "coordinator.log").read_text()
    assert all(re.search(f"process_ended.*{host_id}", log) for host_id in warm), "the node manager saw no end"
    assert pid_of(await send(client, "idle", "hi")) != pid


async def test_a_host_that_dies_while_it_imports_the_agent_is_replaced(client: ServiceClient, tmp_path: Path) -> None:
    file, died = tmp_path / "dies.py", tmp_path / "died"
    dies = f"import os, pathlib\n\ndied = pathlib.Path({str(died)!r})\n"
    dies += "if not died.exists():\n    died.touch()\n    os._exit(9)\n"
    code = "from __future__ import annotations\n"
    file.write_text(Path(FILE).read_text().replace(code, code + dies, 1))
    pid_of(await send(client, "imported", "hi", AgentRef(str(file), "Troubled", "troubled")))
    assert died.exists()


async def test_the_mount_service_may_die(served: Podium, client: ServiceClient) -> None:
    for key in ("m-a", "m-b"):
        pid_of(await send(client, key, "hi"))
    kill_at_once(processes_of(served, "chronicle.fuse.zygote.main"))
    for key in ("m-c", "m-a", "m-b", "m-c", "m-a"):
        pid_of(await send(client, key, "hi"))
    for key, count in (("m-a", 3), ("m-b", 2), ("m-c", 2)):
        assert served("cat", f"troubled/{key}", "who.txt").stdout == f"{key} {count}\n"
    assert served("verify").returncode == 0


async def test_a_message_meets_an_agent_that_goes_to_zero(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    gate, shuts_down = tmp_path / "gate", tmp_path / "shuts-down"
    message = {"text": "hi", "directory": str(tmp_path)}

    async def handled(frames: AsyncIterator[dict[str, Any]]) -> None:
        assert [frame["type"] async for frame in frames][-1] == "turn_end"

    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(2):  # the second one about when it becomes idle
            await handled(client.send(SLEEPY, "z", message))
        await until(shuts_down.exists)
        frames = client.send(SLEEPY, "z", message)
        assert (await anext(frames))["type"] == "accepted"
        gate.touch()
        await handled(frames)
        for delay_ms in (0, 1, 2, 5, 10, 20, 50):  # while its lease is released, its process ends, and afterwards
            await until(lambda: not gate.exists() and shuts_down.exists())
            shuts_down.unlink()
            gate.touch()
            await until(lambda: not gate.exists())
            await asyncio.sleep(delay_ms / 1000)
            await handled(client.send(SLEEPY, "z", message))
        gate.touch()
    assert served.json("state", "sleepy/z")["state"] == {"count": 10}
    assert "turn.failed" not in [event["type"] for event in served.lines("log", "sleepy/z")]


async def test_cancelling_stops_code_that_blocks_and_nothing_else(
    served: Podium, client: ServiceClient, tmp_path: Path
) -> None:
    going, gate, blocks = asyncio.Event(), tmp_path / "gate", tmp_path / "blocks"

    async def goes_on_to_its_end() -> list[str]:
        types = []
        async for frame in client.send(TROUBLED, "goes-on", {"text": f"wait for {gate}"}):
            types.append(frame["type"])
            going.set()
        return types

    async def cancelled(key: str, text: str) -> dict[str, Any]:
        last: dict[str, Any] = {}
        async for last in client.send(TROUBLED, key, {"text": text}):
            if last["type"] == "accepted":
                if key == "blocked":
                    await until(blocks.exists)
                await client.cancel(f"troubled/{key}", last["message_id"])
                # It is durable now, whatever becomes of the service.
                assert status_of(served, last["message_id"]) is MessageStatus.CANCELLED
        return last

    await send(client, "blocked", "hi")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        goes_on = tasks.create_task(goes_on_to_its_end())
        await going.wait()
        waits = await cancelled("goes-on", "hi")
        blocked = await cancelled("blocked", f"block {blocks}")  # only after a grace period is its process ended
        gate.touch()
    assert blocked["error"]["type"] == waits["error"]["type"] == "Cancelled"
    assert goes_on.result()[-1] == "turn_end"
    assert "turn_retry" not in goes_on.result()
    assert served.json("state", "troubled/blocked")["state"] == {"count": 1}
    assert served.json("state", "troubled/goes-on")["state"] == {"count": 1}


async def test_code_that_ends_its_process_or_its_loop_parks_its_message(client: ServiceClient) -> None:
    for text, error in (("interrupt", "KeyboardInterrupt"), ("exit", "HostLost")):
        last = (await send(client, "ends", text))[-1]
        assert (last["type"], last["error"]["type"], last["parked"]) == ("error", error, True)
    assert (await send(client, "ends", "hi"))[-1]["type"] == "turn_end"


async def test_why_tells_what_a_running_agent_waits_for(served: Podium, client: ServiceClient, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    sending = asyncio.create_task(send(client, "asked", f"wait for {gate}"))

    def handles() -> dict[str, Any]:
        found = served.json("why", "troubled/asked") if served.row("troubled/asked") else {}
        return found if found.get("message_id") else {}

    why = await asyncio.to_thread(wait_until, handles)
    assert why["waits_for"].startswith(f"the end of its turn for {why['message_id']} (limit in ")
    assert (why["status"], why["isolation"], why["pending"], why["epoch"]) == ("awake", "process", 1, 1)
    (node,) = served.json("nodes")["nodes"]
    assert (node["node"], node["problem"]) == ("local", None)
    assert node["assigned"] >= 1
    assert node["mounts"] >= 1
    assert 0 < node["memory_available"] < node["memory"]
    gate.touch()
    assert why["pid"] == pid_of(await sending)


async def test_malformed_requests_hurt_nobody(served: Podium, client: ServiceClient) -> None:
    socket = str(Home(served.home).socket_path)

    async def answer(data: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(len(data).to_bytes(4, "big") + data)
        try:
            return await asyncio.wait_for(read_packet(reader), TIMEOUT_S) or b""
        finally:
            writer.close()

    for data in (b"", b"no json", b"5", b"[1]", b"[" * 100_000, b'{"op":"hello"}'):
        refused = json.loads(await answer(data))
        assert (refused["id"], refused["error"]["type"]) == (None, "InvalidInput")
    good = {"file": FILE, "class": "Troubled", "agent_type": "troubled"}
    for request, kind in (
        ({}, "PodiumError"),
        ({"op": "send"}, "InvalidInput"),
        ({"op": "send", "agent": {**good, "file": 5}, "key": "asked", "message": {}}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": 5, "message": {}}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": "../a", "message": {}}, "InvalidAddress"),
        ({"op": "send", "agent": good, "key": "asked", "message": ["no object"]}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": "asked", "message": {"text": float("nan")}}, "InvalidInput"),
        ({"op": "send", "agent": good, "key": "asked", "message": {}, "when_busy": "shout"}, "InvalidInput"),
        ({"op": "cancel", "agent": "troubled/none", "message_id": "msg_unknown"}, "UnknownAgent"),
        ({"op": "rewind", "agent": "troubled/none", "turn": "1"}, "InvalidInput"),
        ({"op": "rewind", "agent": "troubled/none", "turn": 1}, "UnknownAgent"),
        ({"op": "passivate", "agent": "nobody"}, "InvalidAddress"),
    ):
        refused = json.loads(await answer(json.dumps({"id": 1, **request}).encode()))
        assert (refused["id"], refused["error"]["type"]) == (1, kind)
    assert (await send(client, "asked", "x" * 10_000_000))[-1]["type"] == "turn_end"


async def test_a_service_that_is_told_to_end_ends_the_turn_first_and_then_lets_its_clients_go(
    podium: Podium, tmp_path: Path
) -> None:
    gate, socket = tmp_path / "gate", Home(podium.home).socket_path
    async with client_of(podium) as client:
        await send(client, "a", "hi")
        (service,) = processes_of(podium, "coordinator.service.daemon")

        async def end_it_in_the_middle() -> str:
            frame = {}
            async for frame in client.send(TROUBLED, "a", {"text": f"wait for {gate}"}):
                if frame["type"] == "turn_start":
                    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                        os.kill(service, number)
                    await until(lambda: not socket.exists())  # it ends
                    gate.touch()
            return str(frame["type"])

        assert await asyncio.wait_for(end_it_in_the_middle(), TIMEOUT_S) == "turn_end"
        await asyncio.wait_for(client.wait_lost(), TIMEOUT_S)
        with pytest.raises(ServiceError, match="accepted messages are kept"):
            await client.ps()
    await asyncio.to_thread(podium, "run", f"{FILE}:Troubled", "--key", "a", "--message", "hi")
    assert podium.json("state", "troubled/a")["state"] == {"count": 3}
    assert "turn.failed" not in [event["type"] for event in podium.lines("log", "troubled/a")]


async def test_a_service_that_hangs_is_not_waited_for(
    served: Podium, client: ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, "hangs", "hi")
    (service,) = processes_of(served, "coordinator.service.daemon")
    os.kill(service, signal.SIGSTOP)
    try:
        with monkeypatch.context() as hasty:
            hasty.setattr("coordinator.service.client._BEAT_S", 0.5)
            hasty.setattr("coordinator.service.client._SILENT_S", 1.0)
            with pytest.raises(ServiceError, match="it hangs; accepted messages are kept"):
                await send(client, "hangs", "hi")
    finally:
        os.kill(service, signal.SIGCONT)
    while (await send(client, "hangs", "hi"))[-1]["type"] != "turn_end":
        pass
    assert served.json("state", "troubled/hangs")["state"] == {"count": 3}


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
