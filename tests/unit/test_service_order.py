"""The service's socket: in which order what a client sends is admitted."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from coordinator.admission import Admission
from coordinator.config import Settings
from coordinator.home import Home
from coordinator.service.client import AgentRef, ServiceClient
from coordinator.service.server import ServiceServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from coordinator.admission import Admitted
    from coordinator.model import Code
    from coordinator.ray.fleet import Fleet
    from podium.address import Address

AGENT = AgentRef("/agents/hello.py", "Hello", "hello")
DEADLINE_S = 60


class Answering:
    """A fleet whose agents answer at once."""

    async def register(self, code: Code) -> None:
        await asyncio.sleep(0)

    async def deliver(self, address: Address, code: Code, message: Admitted) -> AsyncIterator[dict[str, Any]]:
        yield {"type": "turn_end", "message_id": message.message_id}


async def test_what_a_client_sends_to_an_agent_is_admitted_in_that_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bytes] = []
    other_agent, whole = threading.Event(), Admission.admit

    def admit(self: Admission, address: Address, body: bytes, *rest: Any) -> Admitted:
        begun.append(body)
        if b"one" in body:  # the others have all the time to pass it
            assert other_agent.wait(DEADLINE_S), "messages to another agent wait for it, too"
        admitted = whole(self, address, body, *rest)
        if address.key == "b":
            other_agent.set()
        return admitted

    monkeypatch.setattr(Admission, "admit", admit)
    home = Home(tmp_path / "home").create()
    home.make_run_dir()
    try:
        async with ServiceServer(home, Settings(), cast("Fleet", Answering())).listening():
            client = ServiceClient(*await asyncio.open_unix_connection(home.socket_path))

            async def sent(key: str, text: str) -> list[Any]:
                return [frame["type"] async for frame in client.send(AGENT, key, {"text": text})]

            async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
                for key, text in (("a", "one"), ("a", "two"), ("a", "three"), ("b", "other")):
                    tasks.create_task(sent(key, text))
            await client.close()
        with closing(home.journal()) as journal:
            (session,) = journal.sessions("hello/a")
            inbox = [message.body for message in journal.pending(session.session_id)]
    finally:
        home.remove_run_dir()
    assert inbox == [b'{"text":"one"}', b'{"text":"two"}', b'{"text":"three"}']
    assert begun.index(b'{"text":"other"}') < begun.index(b'{"text":"two"}')
