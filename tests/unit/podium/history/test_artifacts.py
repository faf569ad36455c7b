"""What agents hand out: there with its turn or not at all, found by its id, the same bytes for ever."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import InvalidInput, Unavailable
from chronicle.ids import BlobId
from chronicle.workspace.content import content
from chronicle.workspace.content.content import WHOLE_BYTES
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.artifacts.artifacts import event_id_of, find_artifact, open_artifact, read_artifact
from podium.artifacts.names import check_media_type, check_name, media_type_of
from podium.artifacts.writing import ArtifactWriter
from podium.errors import PodiumError, UnknownArtifact, UnknownMoment
from podium.testing import AgentHarness
from podium.turn.busy import BusyPolicy
from tests.waiting import wait_until

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
        kinds = ["turn_start", "artifact", "message_start", "message_end", "turn_end"]
        assert [frame["type"] for frame in again] == kinds
        assert again[1] == told(answer)[0]


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
            with pytest.raises(UnknownArtifact, match="no artifact art_"):
                agent.artifact(artifact_id)


async def test_an_attempt_that_is_repeated_hands_out_once() -> None:
    async with AgentHarness(Maker) as agent:
        answer = await agent.send({**make("kept.txt", text="x"), "then": "fail once"})
        assert answer.ok
        (found,) = agent.artifacts()
        assert found.artifact_id == told(answer)[-1]["artifact_id"]
        assert agent.state == {"made": [found.artifact_id]}


async def test_a_store_that_is_away_at_the_end_of_the_turn_fails_that_try() -> None:
    blobs = CountingBlobs()

    class Leaving(Maker):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await super().on_message(ctx, message)
            blobs.away = int(self.tried == 1)

    async with AgentHarness(Leaving, blobs=blobs) as agent:
        answer = await agent.send(make("kept.txt", text="x"))
        assert answer.ok
        assert [frame["error"]["type"] for frame in answer.frames if frame["type"] == "turn_retry"] == ["Unavailable"]
        (found,) = agent.artifacts()
        assert agent.artifact(found.artifact_id) == b"x"


async def test_an_interrupted_turn_keeps_what_it_said_and_hands_out_nothing() -> None:
    async with AgentHarness(Maker) as agent:
        working = asyncio.create_task(agent.send({**make("lost.txt", text="x"), "then": "wait"}))
        maker: Any = agent.activation._agent
        while not (getattr(maker, "context", None) and maker.context.state.made):
            await asyncio.sleep(0)
        assert (await agent.send({}, when_busy=BusyPolicy.INTERRUPT)).ok
        stopped = await working
        assert len(told(stopped)) == 1
        assert stopped.error is not None
        assert agent.artifacts() == []
        assert [payload["text"] for _, payload in agent.events("assistant_message")] == ["here ", "here "]
        settled = await agent.activation.settled(stopped.receipt.message_id)
        assert [frame["type"] for frame in settled] == ["turn_start", "message_start", "message_update", "error"]
        assert settled[0] == next(frame for frame in stopped.frames if frame["type"] == "turn_start")
        assert settled[2]["delta"] == "here "


async def test_who_steers_a_turn_shares_its_artifacts() -> None:
    class Steered(Maker):
        heard: asyncio.Event

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            self.heard = asyncio.Event()
            await ctx.add_artifact("first.txt", "first")
            await self.heard.wait()
            await ctx.add_artifact("last.txt", "last")

        async def on_steer(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await ctx.add_artifact("steered.txt", "steered")
            self.heard.set()

    async with AgentHarness(Steered) as agent:
        working = asyncio.create_task(agent.send("work"))
        maker: Any = agent.activation._agent
        while not getattr(maker, "heard", None):
            await asyncio.sleep(0)
        steered = await agent.send("faster", when_busy=BusyPolicy.STEER)
        worked = await working
        found = agent.artifacts()
        assert [(each.name, each.turn) for each in found] == [("first.txt", 1), ("steered.txt", 1), ("last.txt", 1)]
        assert [frame["name"] for frame in told(worked)] == ["first.txt", "last.txt"]
        assert [frame["name"] for frame in told(steered)] == ["steered.txt"]
        assert [each.message_id for each in found] == [
            worked.receipt.message_id,
            steered.receipt.message_id,
            worked.receipt.message_id,
        ]
        for answer in (worked, steered):
            again = await agent.activation.settled(answer.receipt.message_id)
            assert [frame for frame in again if frame["type"] == "artifact"] == told(answer)


async def test_other_hooks_hand_out_too() -> None:
    class Early(Maker):
        async def on_init(self, ctx: AgentContext[Any]) -> None:
            await ctx.add_artifact("ready.txt", "ready")

        async def on_idle_timeout(self, ctx: AgentContext[Any]) -> bool:
            await ctx.add_artifact("idle.txt", "idle")
            return True

    async with AgentHarness(Early) as agent:
        await agent.send({})
        assert not await agent.advance(1_000)
        assert [(found.name, found.turn, found.message_id) for found in agent.artifacts()] == [
            ("ready.txt", 1, None),
            ("idle.txt", 3, None),
        ]
        assert [found.name for found in agent.artifacts(turn=2)] == ["ready.txt"]
        assert agent.artifacts(turn=0) == []
        with pytest.raises(UnknownMoment):
            agent.artifacts(turn=4)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("empty name", make("", text="x"), "is empty"),
    ("path as name", make("a/b.txt", text="x"), "is a path"),
    ("dots as name", make("..", text="x"), "is a path"),
    ("control in name", make("a\x1b[2J", text="x"), "control characters"),
    ("direction in name", make("a\u202egpj.exe", text="x"), "control characters"),
    ("long name", make("ü" * 128, text="x"), "longer than 255"),
    ("no name", make(7, text="x"), "is a string, not int"),  # type: ignore[arg-type]
    ("media type", make("a", text="x", type="text"), "is not a media type"),
    ("two lines", make("a", text="x", type="text/plain\r\nx: y"), "is not a media type"),
    ("no content", make("a"), "bytes, a str or a Path, not NoneType"),
    ("large", make("a", bytes=LIMIT + 1), "more than 2000000 bytes"),
    ("large file", make("a", file="large"), "more than 2000000 bytes"),
    ("outside", make("a", file="/etc/passwd"), "is not in the workspace"),
    ("above", make("a", file="../escape"), "is not in the workspace"),
    ("linked outside", make("a", file="link"), "is not in the workspace"),
    ("folder", make("a", file="folder"), "is not a file"),
    ("the workspace", make("a", file="."), "is not a file"),
    ("pipe", make("a", file="pipe"), "is not a file"),
    ("absent", make("a", file="absent"), "No such file"),
    ("circle", make("a", file="circle"), "symbolic links"),
]


@pytest.mark.parametrize(("message", "why"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
async def test_what_cannot_be_handed_out_is_refused(message: dict[str, Any], why: str) -> None:
    class Refused(Maker):
        max_attempts = 1

        async def on_init(self, ctx: AgentContext[Any]) -> None:
            (ctx.workspace / "large").write_bytes(bytes(LIMIT + 1))
            (ctx.workspace / "link").symlink_to("/etc/passwd")
            (ctx.workspace / "circle").symlink_to("circle")
            (ctx.workspace / "folder").mkdir()
            os.mkfifo(ctx.workspace / "pipe")
            (ctx.workspace.parent / "escape").write_text("x")

    async with AgentHarness(Refused) as agent:
        answer = await agent.send(message)
        assert answer.error is not None
        assert why in str(answer.error["message"])
        assert agent.artifacts() == []


async def test_a_context_hands_out_nothing_after_its_turn() -> None:
    async with AgentHarness(Maker) as agent:
        for then in ("", "fail"):
            await agent.send({"then": then})
            maker: Any = agent.activation._agent
            with pytest.raises(PodiumError, match="is over"):
                await maker.context.add_artifact("late.txt", "x")
            with pytest.raises(PodiumError, match="too late"):  # as a thread does that still reads
                maker.context._scope.turn.artifacts.take("late.txt", b"x")


async def test_a_refused_artifact_need_not_fail_the_turn() -> None:
    class Careful(Maker):
        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            with pytest.raises(InvalidInput, match="more than 2000000 bytes"):
                await ctx.add_artifact("large", bytes(LIMIT + 1))
            with pytest.raises(InvalidInput, match="not Unicode text"):
                await ctx.add_artifact("text", "\udcff")
            await ctx.add_artifact("same", "x")
            await ctx.add_artifact("same", b"x", "application/x-mine")

    async with AgentHarness(Careful) as agent:
        assert (await agent.send({})).ok
        one, two = agent.artifacts()
        assert (one.name, one.content) == (two.name, two.content)
        assert one.artifact_id != two.artifact_id
        assert (one.media_type, two.media_type) == ("text/plain; charset=utf-8", "application/x-mine")


async def test_ids_that_no_artifact_has() -> None:
    async with AgentHarness(Maker) as agent:
        await agent.send(make("a", text="x"))
        (found,) = agent.artifacts()
        committed = agent.events("turn.committed")[0][0].event_id
        for artifact_id in (
            "",
            "art_",
            found.artifact_id.lower(),
            found.artifact_id + "0",
            str(event_id_of(found.artifact_id)),
            committed.replace("evt_", "art_"),  # an event of another type
            "art_" + "0" * 26,
        ):
            with pytest.raises(UnknownArtifact):
                agent.artifact(artifact_id)


class SlowBlobs(MemoryBlobStore):
    """Its puts wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.putting, self.twice, self.let_go = threading.Event(), threading.Event(), threading.Event()

    def put(self, blobs: Mapping[BlobId, bytes]) -> None:
        if self.putting.is_set():
            self.twice.set()
        self.putting.set()
        assert self.let_go.wait(30)
        super().put(blobs)


def test_what_is_still_read_when_the_turn_ends_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(random.Random(5).randbytes(60_000_000))
    blobs = SlowBlobs()
    writer = ArtifactWriter(blobs, lambda: tmp_path, 10**9)
    small = writer.take("small", b"small")
    with ThreadPoolExecutor(2) as threads:
        reading = threads.submit(writer.take, "large", Path("large"))
        assert blobs.putting.wait(30)
        keeping = threads.submit(writer.keep)  # as when the caller of the first was cancelled
        wait_until(lambda: writer._over)
        blobs.let_go.set()
        with pytest.raises(PodiumError, match="too late"):
            reading.result(30)
        keeping.result(30)
    assert blobs.get(small.id) == b"small"
    with pytest.raises(PodiumError, match="too late"):
        writer.take("late", b"late")


def test_one_thread_at_a_time_fills_the_buffer(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(random.Random(name).randbytes(40_000_000))
    blobs = SlowBlobs()
    writer = ArtifactWriter(blobs, lambda: tmp_path, 10**9)
    with ThreadPoolExecutor(2) as threads:
        taken = [threads.submit(writer.take, name, Path(name)) for name in ("one", "two")]
        assert blobs.putting.wait(30)
        assert not blobs.twice.wait(1)
        blobs.let_go.set()
        contents = [future.result(30) for future in taken]
    writer.keep()
    for name, stored in zip(("one", "two"), contents, strict=True):
        assert content.read(blobs, stored) == (tmp_path / name).read_bytes()


async def test_calls_in_threads_at_once(tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    writer = ArtifactWriter(blobs, lambda: tmp_path, 10**9)
    wanted = [random.Random(number).randbytes(200_000) for number in range(20)]
    for number, data in enumerate(wanted):
        (tmp_path / str(number)).write_bytes(data)
    taken = await asyncio.gather(*(asyncio.to_thread(writer.take, "x", Path(str(number))) for number in range(20)))
    await asyncio.to_thread(writer.keep)
    assert [content.read(blobs, each) for each in taken] == wanted


@pytest.mark.parametrize(
    ("name", "text", "media_type"),
    [
        ("a.png", False, "image/png"),
        ("A.PNG", False, "image/png"),
        ("a.md", True, "text/markdown; charset=utf-8"),
        ("a.md", False, "text/markdown"),
        ("a.json", True, "application/json"),
        ("a", True, "text/plain; charset=utf-8"),
        ("a", False, "application/octet-stream"),
        ("a.tar.gz", False, "application/gzip"),
        ("a.csv.xz", False, "application/x-xz"),
        ("data:,x.png", False, "image/png"),
        ("http:x.png?y", False, "application/octet-stream"),
    ],
)
def test_names_tell_media_types(name: str, text: bool, media_type: str) -> None:
    check_name(name)
    assert media_type_of(name, text=text) == media_type
    check_media_type(media_type)


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "image/svg+xml", "application/vnd.a-b.c+json; q=1", 'text/plain;charset="utf-8"; x=y'],
)
def test_media_types(media_type: str) -> None:
    check_media_type(media_type)
    for wrong in (media_type + "\n", " " + media_type, media_type + ";", "/" + media_type, media_type + "x" * 255):
        with pytest.raises(InvalidInput):
            check_media_type(wrong)
