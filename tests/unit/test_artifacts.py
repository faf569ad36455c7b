"""What agents hand out: there with its turn or not at all, found by its id, the same bytes for ever."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import Corrupt, InvalidInput, Unavailable
from chronicle.ids import BlobId, EventId
from chronicle.journal.records import MessageStatus
from chronicle.workspace.content import WHOLE_BYTES
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.artifact_names import check_media_type, check_name, media_type_of
from podium.artifacts import find_artifact, open_artifact, read_artifact
from podium.busy import BusyPolicy
from podium.errors import PodiumError, UnknownArtifact, UnknownMoment
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from collections.abc import Mapping

    from podium.testing import Exchange

LARGE = random.Random(1).randbytes(1_000_000)
LIMIT = 2_000_000


class Maker(BaseAgent):
    """Hands out what its message says: ``{"name", "text" | "file" | "bytes", "type"}``, then does ``then``."""

    class State(DeltaState):
        _entity_type = "maker"
        made: list[str] = []

    max_attempts = 2
    max_artifact_bytes = LIMIT
    tried = 0
    context: AgentContext[Any]

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        self.tried += 1
        self.context = ctx
        await ctx.send_message("here ")
        for wanted in message.get("make", []):
            data = wanted.get("text")
            if "file" in wanted:
                data = Path(wanted["file"])
            elif "bytes" in wanted:
                data = random.Random(wanted["bytes"]).randbytes(wanted["bytes"])
            ctx.state.made.append(await ctx.add_artifact(wanted["name"], data, wanted.get("type")))
        match message.get("then"):
            case "fail":
                raise ValueError("as told")
            case "fail once" if self.tried == 1:
                raise ValueError("as told")
            case "wait":
                await asyncio.Event().wait()


def make(name: str, **wanted: Any) -> dict[str, Any]:
    return {"make": [{"name": name, **wanted}]}


def told(answer: Exchange) -> list[dict[str, Any]]:
    """The artifacts that the client was told of."""
    return [frame for frame in answer.frames if frame["type"] == "artifact"]


async def test_an_artifact_comes_with_its_turn() -> None:
    async with AgentHarness(Maker) as agent:
        answer = await agent.send(make("report.html", text="<h1>Grüße</h1>"))
        (found,) = agent.artifacts()
        assert agent.state == {"made": [found.artifact_id]}
        assert told(answer) == [
            {
                "type": "artifact",
                "message_id": answer.receipt.message_id,
                "artifact_id": found.artifact_id,
                "name": "report.html",
                "media_type": "text/html; charset=utf-8",
                "size": 16,
            }
        ]
        assert [event.type for event, _ in agent.events()] == [
            "agent.created",
            "user_message",
            "artifact.added",
            "assistant_message",
            "turn.committed",
        ]
        ((event, payload),) = agent.events("artifact.added")
        assert payload == {
            "artifact_id": found.artifact_id,
            "name": "report.html",
            "media_type": "text/html; charset=utf-8",
            "size": 16,
            "content_id": found.content.id,
            "chunked": False,
        }
        assert found.artifact_id == event.event_id.replace("evt_", "art_")
        assert (found.turn, found.seq, found.branch_id) == (1, event.seq, event.branch_id)
        assert (found.message_id, found.added_ms) == (answer.receipt.message_id, event.ts)
        assert agent.artifact(found.artifact_id) == "<h1>Grüße</h1>".encode()
        assert find_artifact(agent.store, agent.blobs, found.artifact_id) == found
        again = await agent.activation.settled(answer.receipt.message_id)
        assert [frame["type"] for frame in again] == ["artifact", "message_start", "message_end", "turn_end"]
        assert again[0] == told(answer)[0]


@pytest.mark.parametrize("size", [0, 1, WHOLE_BYTES, WHOLE_BYTES + 1, LIMIT])
async def test_bytes_of_every_size_come_back(size: int) -> None:
    async with AgentHarness(Maker) as agent:
        assert (await agent.send(make("data", bytes=size))).ok
        (found,) = agent.artifacts()
        wanted = random.Random(size).randbytes(size)
        assert found.size_bytes == size
        assert found.content.chunked == (size > WHOLE_BYTES)
        assert read_artifact(agent.blobs, found) == wanted
        with open_artifact(agent.blobs, found) as file:
            assert file.read() == wanted
            file.seek(size // 2)
            assert file.read(100) == wanted[size // 2 :][:100]


async def test_a_file_is_taken_as_it_is_now() -> None:
    class Writer(Maker):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            path = ctx.workspace / "folder" / "out.bin"
            path.parent.mkdir()
            path.write_bytes(LARGE)
            await ctx.add_artifact("relative", Path("folder/out.bin"))
            await ctx.add_artifact("whole.csv", path)
            (ctx.workspace / "link").symlink_to(path)
            await ctx.add_artifact("linked", Path("link"))
            path.write_bytes(b"something else")

    async with AgentHarness(Writer) as agent:
        assert (await agent.send("go")).ok
        relative, whole, linked = agent.artifacts()
        assert read_artifact(agent.blobs, relative) == LARGE
        assert relative.content == whole.content == linked.content
        assert relative.content.chunked
        assert [found.media_type for found in (relative, whole)] == ["application/octet-stream", "text/csv"]
        assert (agent.workspace / "folder" / "out.bin").read_bytes() == b"something else"


class CountingBlobs(MemoryBlobStore):
    """Counts what is put, and holds the largest at one time."""

    def __init__(self) -> None:
        super().__init__()
        self.packs: list[int] = []
        self.away = 0

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("the store is away")
        self.packs.append(sum(len(data) for data in blobs.values()))
        super().put(blobs)


async def test_equal_content_is_stored_once_and_large_files_go_out_piece_by_piece() -> None:
    size = 100_000_000

    class Large(Maker):
        max_artifact_bytes = size

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            path = ctx.workspace / "large"
            generator = random.Random(3)
            with path.open("wb") as file:
                for _ in range(size // 1_000_000):
                    file.write(generator.randbytes(1_000_000))
            await ctx.add_artifact("one", path)
            await ctx.add_artifact("two", path)
            path.unlink()

    blobs = CountingBlobs()
    async with AgentHarness(Large, blobs=blobs) as agent:
        assert (await agent.send("go")).ok
        one, two = agent.artifacts()
        assert one.content == two.content
        assert max(blobs.packs) < 40_000_000
        stored = sum(len(blobs.get(identifier)) for identifier in blobs.blob_ids())
        assert size < stored < 1.01 * size


async def test_a_turn_that_fails_hands_out_nothing() -> None:
    async with AgentHarness(Maker) as agent:
        answer = await agent.send({**make("lost.txt", text="x"), "then": "fail"})
        assert not answer.ok
        assert agent.artifacts() == []
        ids = [frame["artifact_id"] for frame in told(answer)]
        assert len(set(ids)) == 2  # the client was told, and then that the attempt does not count
        for artifact_id in ids:
            with pytest.raises(UnknownArtifact, match="podium artifacts"):
                agent.artifact(artifact_id)


async def test_an_attempt_that_is_repeated_hands_out_once() -> None:
    async with AgentHarness(Maker) as agent:
        answer = await agent.send({**make("kept.txt", text="x"), "then": "fail once"})
        assert answer.ok
        (found,) = agent.artifacts()
        assert found.artifact_id == told(answer)[-1]["artifact_id"]
        assert agent.state == {"made": [found.artifact_id]}
