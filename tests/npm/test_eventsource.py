"""The npm package ``eventsource``, a standard EventSource, reads streams as they are, and resumes them by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from coordinator.access.caller import Scope
from coordinator.gateway import event_stream
from coordinator.homes.sqlite.keys import SqliteKeyRecords
from coordinator.streams.sse import OPENING
from tests.npm.cutting_proxy import Cut, cutting_proxy
from tests.npm.node import INSTALLED, run_client
from tests.unit.coordinator.gateway.served_home import served_home
from tests.unit.coordinator.gateway.test_streams import AGENT, Talker, go_on, on_a_socket, two_gateways
from tests.unit.coordinator.streams.stories import Reader

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not INSTALLED, reason="Node.js and npm packages are not installed: make setup-tests"),
]

SCRIPT: list[Any] = [
    ["begin", "one"],
    ["say", "one", "Grüße "],
    ["emit", "started"],
    ["say", "one", "\U0001f600\U0001f680 "],
    ["wait"],
    ["begin", "two"],
    ["say", "two", "second\n\nreply "],
    ["say", "one", "x" * 200],
    ["wait"],
    ["fail"],
    ["say", "two", "goes on"],
    ["wait"],
    ["artifact", "a.txt"],
    ["say", "one", " and ends last"],
]
TEXTS = ["Grüße \U0001f600\U0001f680 " + "x" * 200 + " and ends last", "second\n\nreply goes on"]
CUTS = (
    Cut("\U0001f680".encode()[:3]),  # inside of a character
    Cut(b"xxxxx", lambda: go_on(1)),
    Cut(b'"type":"turn_retry"', lambda: go_on(1)),
    Cut(b"goes", lambda: go_on(2)),
    Cut(b'"type":"turn_end"', lambda: go_on(1)),
)


async def test_a_stream_that_is_cut_again_and_again_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "OPENING", OPENING.replace(b"1000", b"20"))
    async with two_gateways(tmp_path) as gateways:
        Talker.failures = 1
        message_id = await gateways.send(SCRIPT)
        server = str(gateways.clients[0].base_url)
        async with cutting_proxy(server, CUTS) as proxy:
            printed = await run_client("read_stream.js", f"{proxy.url}{AGENT}/messages/{message_id}")
    reader, last_id = Reader(), None
    ids_at_losses: list[str | None] = []
    for line in printed:
        if line["kind"] == "message":
            reader.take(json.loads(line["data"]))
            last_id = line["id"]
        elif line["kind"] == "error" and not line["closed"]:
            ids_at_losses.append(last_id)
    assert proxy.cut == len(CUTS)
    assert len(reader.attempts) == 2
    assert list(list(reader.attempts.values())[-1].values()) == TEXTS
    assert len(set(reader.once)) == len(reader.once), "something came twice"
    assert reader.once[-2:] == [("turn_end",), ("agent_end",)]
    # The last connection is after the end of the stream: 204, upon which a source connects no more.
    assert proxy.last_event_ids == [None, *ids_at_losses]
    assert proxy.last_event_ids[-1] == f"{message_id}/end"
    assert printed[-1] == {"kind": "error", "status": 204, "closed": True}


async def test_a_key_is_sent_with_each_connection(tmp_path: Path) -> None:
    keys = SqliteKeyRecords(tmp_path, "home1")
    _, key = keys.create("program", "default", [Scope.WRITE], 1)
    async with served_home(tmp_path / "home", Talker, keys=keys) as home, on_a_socket(home.app) as url:
        async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}) as http:
            answer = await http.post(
                f"{AGENT}/messages",
                json={"message": {"script": [["begin", "one"], ["say", "one", "Hi"]]}},
                headers={"Prefer": "respond-async"},
            )
        stream = f"{url}{AGENT}/messages/{answer.json()['message_id']}"
        printed = await run_client("read_stream.js", stream, PODIUM_KEY=key)
        frames = [json.loads(line["data"]) for line in printed if line["kind"] == "message"]
        assert (frames[0]["type"], frames[-1]["outcome"]) == ("accepted", "committed")
        assert printed[-1] == {"kind": "error", "status": 204, "closed": True}
        # A source that is refused asks no more.
        for refused, sent, status in ((stream, "", 401), (f"{url}{AGENT}x/events", key, 404)):
            printed = await run_client("read_stream.js", refused, PODIUM_KEY=sent)
            assert printed == [{"kind": "error", "status": status, "closed": True}]
