"""Artifacts wherever an agent's events go: forks, rewinds, files, folds, erasures, deletions, collections, damage."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Corrupt, InvalidInput, NotFound
from chronicle.ids import BlobId, IdSource
from chronicle.journal.chain import seal
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import Commit, Draft
from chronicle.workspace.content.content import chunk_list
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.agent_record import find_session
from podium.artifacts.artifacts import event_id_of, find_artifact, list_artifacts, open_artifact, read_artifact
from podium.errors import UnknownArtifact
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import import_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.compare import compare
from podium.history.delete import delete_agent
from podium.history.erase import erase_messages
from podium.history.fold import fold_agent
from podium.history.reachability import reachable_blobs
from podium.testing import AgentHarness
from tests.unit.podium.history.notes_agent import problems

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.canonical import JsonObject
    from chronicle.journal.port import JournalStore

NOW_MS = 1_700_000_000_000
FORK = Address("painter", "fork")


def picture(text: str) -> bytes:
    return random.Random(text).randbytes(400_000)


class Painter(BaseAgent):
    """Hands out a small and a large artifact for each message."""

    class State(DeltaState):
        _entity_type = "painter"
        count: int = 0

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        ctx.state.count += 1
        await ctx.add_artifact(f"{message['text']}.txt", message["text"])
        await ctx.add_artifact(f"{message['text']}.png", picture(message["text"]))


def names(store: JournalStore, blobs: BlobStore, address: Address, turn: int | None = None) -> list[str]:
    """The names of an agent's large artifacts, each of which must have its own content."""
    found = list_artifacts(store, blobs, address, turn)
    for artifact in found:
        stem, _, kind = artifact.name.partition(".")
        assert read_artifact(blobs, artifact) == (picture(stem) if kind == "png" else stem.encode())
        assert find_artifact(store, blobs, artifact.artifact_id) == artifact
    return [artifact.name.removesuffix(".png") for artifact in found if artifact.name.endswith(".png")]


async def painted(agent: AgentHarness, *texts: str) -> None:
    for text in texts:
        assert (await agent.send(text)).ok


async def test_forks_inherit_what_was_handed_out_until_then(store: JournalStore) -> None:
    async with AgentHarness(Painter, "a", store=store) as agent:
        await painted(agent, "one", "two", "three")
        fork_agent(store, agent.address, 2, FORK, IdSource(), NOW_MS)
        assert names(store, agent.blobs, FORK) == ["one", "two"]
        async with AgentHarness(Painter, "fork", store=store, blobs=agent.blobs) as fork:
            await painted(fork, "other")
        assert names(store, agent.blobs, FORK) == ["one", "two", "other"]
        assert names(store, agent.blobs, FORK, 1) == ["one"]
        assert names(store, agent.blobs, agent.address) == ["one", "two", "three"]
        found = compare(store, agent.blobs, (agent.address, None), (FORK, None))
        assert [event.type for event in found.added].count("artifact.added") == 2
        assert problems(store, agent.blobs) == []


async def test_going_back_takes_nothing_back(store: JournalStore) -> None:
    async with AgentHarness(Painter, "a", store=store) as agent:
        await painted(agent, "one", "two")
        await agent.sleep()
        rewind_agent(store, agent.blobs, agent.address, 1, None, IdSource(), NOW_MS)
        assert names(store, agent.blobs, agent.address) == ["one", "two"]
        await painted(agent, "three")
        assert names(store, agent.blobs, agent.address) == ["one", "two", "three"]
        assert names(store, agent.blobs, agent.address, 3) == ["one", "two"]
        assert agent.state == {"count": 2}


async def test_an_archive_has_them(tmp_path: Path) -> None:
    async with AgentHarness(Painter, "a") as agent:
        await painted(agent, "one", "two")
        export_agent(agent.store, agent.blobs, agent.address, tmp_path / "a.podium")
        ids = [artifact.artifact_id for artifact in agent.artifacts()]
    store, blobs = MemoryJournalStore(), MemoryBlobStore()
    with Archive(tmp_path / "a.podium") as archive:
        import_agent(store, blobs, archive, Address("painter", "b"), IdSource(), NOW_MS)
    assert names(store, blobs, Address("painter", "b")) == ["one", "two"]
    assert [artifact.artifact_id for artifact in list_artifacts(store, blobs, Address("painter", "b"))] == ids
    assert problems(store, blobs) == []


def chunks_of(agent: AgentHarness, turn: int) -> list[BlobId]:
    """Every blob of the last artifact of a turn, a large one."""
    content = agent.artifacts(turn)[-1].content
    assert content.chunked
    chunks = [chunk.id for chunk in chunk_list(agent.blobs, content)]
    assert len(chunks) > 3
    return [content.id, *chunks]


class Damaged(MemoryBlobStore):
    """Another store's blobs, one of which is missing or changed."""

    def __init__(self, blobs: BlobStore, identifier: BlobId, change: str) -> None:
        super().__init__()
        self._blobs = {each: blobs.get(each) for each in blobs.blob_ids()}
        if change == "missing":
            del self._blobs[identifier]
        else:
            self._blobs[identifier] = self._blobs[identifier][:-1] + b"?"


@pytest.mark.parametrize("change", ["missing", "changed"])
async def test_every_damage_is_found_and_the_event_named(change: str, tmp_path: Path) -> None:
    async with AgentHarness(Painter, "a") as agent:
        await painted(agent, "one", "two")
        small, large = agent.artifacts(1)
        found = [(small, small.content.id), *((large, identifier) for identifier in chunks_of(agent, 1))]
        for artifact, identifier in found:
            damaged = Damaged(agent.blobs, identifier, change)
            (problem,) = problems(agent.store, damaged)
            assert f"seq {artifact.seq} ({event_id_of(artifact.artifact_id)}), artifact.added of turn 1" in problem
            assert identifier in problem
            with pytest.raises(Corrupt, match=identifier), open_artifact(damaged, artifact) as file:
                file.read()
            with pytest.raises(Corrupt, match=identifier):
                read_artifact(damaged, artifact)
            with pytest.raises(Corrupt, match=identifier):
                export_agent(agent.store, damaged, agent.address, tmp_path / "damaged")
            assert len(list_artifacts(agent.store, damaged, agent.address)) == 4
        assert list(tmp_path.iterdir()) == []
        if change == "missing":
            with pytest.raises((Corrupt, NotFound)):
                reachable_blobs(agent.store, Damaged(agent.blobs, large.content.id, change), [])


def collected(store: JournalStore, url: str) -> int:
    """Collect at once, and return how many blobs are left."""
    blobs = PackBlobStore(url)
    collect(url, lambda: reachable_blobs(store, blobs, []), GcRules(alone=True, keep_from=1.0))
    blobs.close()
    left = PackBlobStore(url)
    try:
        return len(list(left.blob_ids()))
    finally:
        left.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "blobs").mkdir()
    return f"file://{tmp_path / 'blobs'}"


async def test_what_was_handed_out_is_kept_by_a_collection_and_what_was_not_goes(store: JournalStore, url: str) -> None:
    class Failing(Painter):
        max_attempts = 1

        async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
            await super().on_message(ctx, message)
            if message["text"] == "fail":  # a large one has gone out already
                await ctx.add_artifact("large", random.Random(9).randbytes(40_000_000))
                raise ValueError("as told")

    blobs = PackBlobStore(url)
    async with AgentHarness(Failing, "a", store=store, blobs=blobs) as agent:
        await painted(agent, "one")
        needed = collected(store, url)
        assert not (await agent.send("fail")).ok
        assert len(list(PackBlobStore(url).blob_ids())) > needed + 400
        await painted(agent, "two")
        await agent.sleep()
        collected(store, url)
        fresh = PackBlobStore(url)
        assert names(store, fresh, agent.address) == ["one", "two"]
        assert problems(store, fresh) == []
        assert set(fresh.blob_ids()) == reachable_blobs(store, fresh, [])


async def test_what_is_erased_is_gone(store: JournalStore, url: str) -> None:
    blobs = PackBlobStore(url)
    async with AgentHarness(Painter, "a", store=store, blobs=blobs) as agent:
        await painted(agent, "one", "two")
        await agent.sleep()
        large = agent.artifacts(1)[-1]
        gone = set(chunks_of(agent, 1))
        before = collected(store, url)
        erase_messages(store, agent.address, [event_id_of(large.artifact_id)])
        assert collected(store, url) == before - len(gone)
        fresh = PackBlobStore(url)
        assert fresh.missing(gone) == gone
        assert names(store, fresh, agent.address) == ["two"]
        assert [artifact.name for artifact in list_artifacts(store, fresh, agent.address, 1)] == ["one.txt"]
        with pytest.raises(UnknownArtifact, match="was erased"):
            find_artifact(store, fresh, large.artifact_id)
        assert problems(store, fresh) == []
        with pytest.raises(InvalidInput, match="only messages, results, artifacts and calls of models"):
            erase_messages(store, agent.address, [agent.events("turn.committed")[0][0].event_id])
        async with AgentHarness(Painter, "a", store=store, blobs=fresh) as again:
            await painted(again, "three")
            assert again.state == {"count": 3}


async def test_what_one_agent_still_has_stays_when_another_is_deleted(store: JournalStore, url: str) -> None:
    blobs = PackBlobStore(url)
    async with AgentHarness(Painter, "a", store=store, blobs=blobs) as agent:
        await painted(agent, "one", "shared")
        await agent.sleep()
        ids = [artifact.artifact_id for artifact in agent.artifacts()]
        gone = set(chunks_of(agent, 1))
    async with AgentHarness(Painter, "b", store=store, blobs=blobs) as other:
        await painted(other, "shared")
    delete_agent(store, blobs, agent.address, IdSource(), NOW_MS)
    collected(store, url)
    fresh = PackBlobStore(url)
    assert names(store, fresh, other.address) == ["shared"]
    assert fresh.missing(gone) == gone
    for artifact_id in ids:
        with pytest.raises(UnknownArtifact):
            find_artifact(store, fresh, artifact_id)


async def test_a_fork_that_stands_on_its_own_loses_what_it_inherited(store: JournalStore) -> None:
    async with AgentHarness(Painter, "a", store=store) as agent:
        await painted(agent, "one")
        await agent.sleep()
        fork_agent(store, agent.address, 1, FORK, IdSource(), NOW_MS)
        delete_agent(store, agent.blobs, agent.address, IdSource(), NOW_MS, detach=True)
        assert names(store, agent.blobs, FORK) == []
        async with AgentHarness(Painter, "fork", store=store, blobs=agent.blobs) as fork:
            await painted(fork, "two")
        assert names(store, agent.blobs, FORK) == ["two"]


async def test_folding_drops_them_with_their_turns(store: JournalStore, url: str) -> None:
    blobs = PackBlobStore(url)
    async with AgentHarness(Painter, "a", store=store, blobs=blobs) as agent:
        await painted(agent, "one", "two")
        gone = chunks_of(agent, 2)
        first = agent.artifacts()[0].artifact_id
        await agent.sleep()
        fold_agent(store, blobs, agent.address, None, IdSource(), agent.clock.now_ms())
        assert agent.artifacts() == []
        with pytest.raises(UnknownArtifact):
            agent.artifact(first)
        collected(store, url)
        fresh = PackBlobStore(url)
        assert fresh.missing(gone) == set(gone)
    async with AgentHarness(Painter, "a", store=store, blobs=fresh) as again:
        await painted(again, "three")
        assert names(store, fresh, again.address) == ["three"]
        assert problems(store, fresh) == []


def payloads() -> Sequence[tuple[str, JsonObject]]:
    """Payloads that no turn has written, and what is wrong with them."""
    content = "0" * 64
    whole: JsonObject = {
        "artifact_id": "art_0",
        "name": "a",
        "media_type": "text/plain",
        "size": 1,
        "content_id": content,
        "chunked": False,
    }
    return [
        ("has no content", {key: value for key, value in whole.items() if key != "content_id"}),
        ("has no content", {**whole, "size": "1"}),
        ("is a path", {**whole, "name": "../../.bashrc"}),
        ("media type", {**whole, "media_type": "text/plain\r\nSet-Cookie: x"}),
        ("not a blob id", {**whole, "content_id": "../1"}),
        ("the id of another artifact", whole),
    ]


@pytest.mark.parametrize(("why", "payload"), payloads())
async def test_what_no_turn_has_written_is_damage(why: str, payload: JsonObject) -> None:
    async with AgentHarness(Painter, "a") as agent:
        await painted(agent, "one")
        await agent.sleep()
        session = find_session(agent.store, agent.address)
        head = agent.store.head(session.main_branch_id)
        ids = IdSource()
        event_id = ids.event(NOW_MS)
        events = seal(head, [Draft(event_id, "artifact.added", payload, 1, NOW_MS)])
        lease = agent.store.acquire_lease(session.session_id, "x", NOW_MS, 1)
        agent.store.commit(Commit(session.session_id, head, events, lease.epoch))
        with pytest.raises(Corrupt, match=why):
            agent.artifact(event_id.replace("evt_", "art_"))
        with pytest.raises(Corrupt, match=why):
            agent.artifacts()
        with pytest.raises(Corrupt, match=why):
            reachable_blobs(agent.store, agent.blobs, [])
        (problem,) = problems(agent.store, agent.blobs)
        assert why in problem
        assert event_id in problem
