"""Agents in files: export, import, damage."""

from __future__ import annotations

import json
import random
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.errors import ChronicleError, Conflict, Corrupt, UnsupportedFormat
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from podium.address import Address
from podium.agent import AgentContext
from podium.agent_record import list_agents, read_agent
from podium.errors import AgentExists, UnknownAgent, UnknownMoment
from podium.events import AGENT_SNAPSHOT
from podium.history.archive import Archive, export_agent
from podium.history.archive_import import Imported, import_agent
from podium.history.branching import fork_agent, rewind_agent
from podium.history.delete import delete_agent
from podium.history.fold import fold_agent
from podium.testing import AgentHarness
from tests.unit.podium.history import notes_agent
from tests.unit.podium.history.notes_agent import problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.port import JournalStore

NOW_MS = 1_700_000_000_000


class Notes(notes_agent.Notes):
    """Keeps what it is told, and a large file with it."""

    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        (ctx.workspace / "big").write_bytes(random.Random(message["text"]).randbytes(200_000))
        await super().on_message(ctx, message)


@pytest.fixture
def other(store: JournalStore) -> JournalStore:
    """The journal on another machine."""
    return store


def take(store: JournalStore, blobs: BlobStore, path: Path, name: str) -> Imported:
    with Archive(path) as archive:
        return import_agent(store, blobs, archive, Address.parse(name), IdSource(), NOW_MS)


@pytest.fixture
async def parent(tmp_path: Path) -> Any:
    """An agent with three turns, one of which goes back, and a try that failed; asleep."""
    async with AgentHarness(Notes, "a") as agent:
        await agent.send("one")
        await agent.send("two")
        await agent.send("fail")
        await agent.sleep()
        rewind_agent(agent.store, agent.blobs, agent.address, 1, None, IdSource(), agent.clock.now_ms())
        export_agent(agent.store, agent.blobs, agent.address, tmp_path / "a.podium")
        yield agent


async def test_an_agent_goes_on_elsewhere(parent: AgentHarness, other: JournalStore, tmp_path: Path) -> None:
    blobs = MemoryBlobStore()
    head = read_agent(parent.store, parent.blobs, parent.address).head
    imported = take(other, blobs, tmp_path / "a.podium", "notes/a")
    assert imported.head == head
    assert imported.blobs == len(list(blobs.blob_ids()))
    for turn in range(4):
        here, there = (
            read_agent(store, at, parent.address, turn) for store, at in ((parent.store, parent.blobs), (other, blobs))
        )
        assert (here.state, here.tree) == (there.state, there.tree)
    assert problems(other, blobs) == []
    async with AgentHarness(Notes, "a", store=other, blobs=blobs) as agent:
        assert (agent.workspace / "notes.txt").read_text() == "one"
        await agent.send("four")
        versions = agent.activation.workspace.history("notes.txt")
        assert [version.iteration for version in versions] == [1, 2, 4, 5]
    assert problems(other, blobs) == []
    with pytest.raises(AgentExists, match="notes/a already"):
        take(other, blobs, tmp_path / "a.podium", "notes/a")


async def test_where_it_is_already_the_import_is_a_fork(parent: AgentHarness, tmp_path: Path) -> None:
    imported = take(parent.store, parent.blobs, tmp_path / "a.podium", "notes/copy")
    assert imported.blobs == 0
    assert read_agent(parent.store, parent.blobs, Address("notes", "copy")).state == parent.state
    branch = parent.store.branch(imported.head.branch_id)
    assert branch.parent_branch_id == read_agent(parent.store, parent.blobs, parent.address).head.branch_id


async def test_a_fork_brings_what_it_inherits(parent: AgentHarness, other: JournalStore, tmp_path: Path) -> None:
    fork_agent(parent.store, parent.address, 2, Address("notes", "b"), IdSource(), NOW_MS)
    async with AgentHarness(Notes, "b", store=parent.store, blobs=parent.blobs) as child:
        await child.send("three")
        await child.sleep()
        export_agent(child.store, child.blobs, child.address, tmp_path / "b.podium")
        head, state = read_agent(child.store, child.blobs, child.address).head, child.state
    blobs = MemoryBlobStore()
    assert take(other, blobs, tmp_path / "b.podium", "notes/b").head == head
    assert read_agent(other, blobs, Address("notes", "b")).state == state
    assert [session.name for session in list_agents(other)] == ["notes/b"]
    assert problems(other, blobs) == []
    with pytest.raises(Conflict, match="not all of them"):  # only the fork's part of it is here
        take(other, blobs, tmp_path / "a.podium", "notes/a")


async def test_a_fork_meets_its_parent_again(parent: AgentHarness, other: JournalStore, tmp_path: Path) -> None:
    fork_agent(parent.store, parent.address, 2, Address("notes", "b"), IdSource(), NOW_MS)
    export_agent(parent.store, parent.blobs, Address("notes", "b"), tmp_path / "b.podium")
    blobs = MemoryBlobStore()
    ours = take(other, blobs, tmp_path / "a.podium", "notes/a").head
    take(other, blobs, tmp_path / "b.podium", "notes/b")
    assert len(other.sessions()) == 2
    assert (
        other.branch(read_agent(other, blobs, Address("notes", "b")).head.branch_id).parent_branch_id == ours.branch_id
    )
    assert problems(other, blobs) == []


@pytest.fixture
async def folded(parent: AgentHarness, tmp_path: Path) -> AgentHarness:
    """The agent with its history folded at turn 3, a turn after that, and its archive."""
    fold_agent(parent.store, parent.blobs, parent.address, None, IdSource(), parent.clock.now_ms())
    await parent.send("more")
    await parent.sleep()
    export_agent(parent.store, parent.blobs, parent.address, tmp_path / "folded.podium")
    return parent


async def test_an_agent_that_was_folded_goes_on_elsewhere(
    folded: AgentHarness, other: JournalStore, tmp_path: Path
) -> None:
    with Archive(tmp_path / "folded.podium") as archive:
        manifest = archive.manifest
        assert manifest.base is not None
        assert next(archive.events(0)).type == AGENT_SNAPSHOT
        assert [branch.after_seq for branch in manifest.branches] == [manifest.base.seq]
        assert manifest.events == manifest.head.seq - manifest.base.seq
    blobs = MemoryBlobStore()
    imported = take(other, blobs, tmp_path / "folded.podium", "notes/a")
    assert imported.head == read_agent(folded.store, folded.blobs, folded.address).head
    assert problems(other, blobs) == []
    session = other.session("notes/a")
    assert [entry.change for entry in other.catalogue(session.session_id)] == ["created", "folded"]
    for turn in (3, 4):
        assert (
            read_agent(other, blobs, folded.address, turn).state
            == read_agent(folded.store, folded.blobs, folded.address, turn).state
        )
    with pytest.raises(UnknownMoment, match="not kept any more"):
        read_agent(other, blobs, folded.address, 2)
    async with AgentHarness(Notes, "a", store=other, blobs=blobs) as agent:
        await agent.send("five")
        assert agent.state == {"said": ["one", "more", "five"]}
        assert (agent.workspace / "notes.txt").read_text() == "one\nmore\nfive"
        versions = agent.activation.workspace.history("notes.txt")
        assert [version.iteration for version in versions] == [1, 2, 4, 5, 6]
        await agent.sleep()
        export_agent(other, blobs, agent.address, tmp_path / "again.podium")
        with Archive(tmp_path / "again.podium") as archive:
            archive.check()
            assert archive.manifest.base is not None
            assert archive.manifest.base.hash == manifest.base.hash
    assert problems(other, blobs) == []
    take(folded.store, folded.blobs, tmp_path / "folded.podium", "notes/copy")
    assert problems(folded.store, folded.blobs) == []
    with pytest.raises(Conflict, match="with other events, or not all of them"):
        take(other, blobs, tmp_path / "a.podium", "notes/b")


async def test_a_fork_of_a_folded_agent_brings_what_it_inherits(
    folded: AgentHarness, other: JournalStore, tmp_path: Path
) -> None:
    fork_agent(folded.store, folded.address, 4, Address("notes", "b"), IdSource(), NOW_MS)
    async with AgentHarness(Notes, "b", store=folded.store, blobs=folded.blobs) as child:
        await child.send("child")
        await child.sleep()
        export_agent(child.store, child.blobs, child.address, tmp_path / "b.podium")
        state = child.state
    blobs = MemoryBlobStore()
    take(other, blobs, tmp_path / "b.podium", "notes/b")
    assert read_agent(other, blobs, Address("notes", "b")).state == state
    assert problems(other, blobs) == []
    assert len(other.sessions()) == 2


async def test_a_fork_that_stands_on_its_own_needs_nothing_of_its_parent(
    parent: AgentHarness, other: JournalStore, tmp_path: Path
) -> None:
    fork_agent(parent.store, parent.address, 2, Address("notes", "b"), IdSource(), NOW_MS)
    delete_agent(parent.store, parent.blobs, parent.address, IdSource(), parent.clock.now_ms(), detach=True)
    export_agent(parent.store, parent.blobs, Address("notes", "b"), tmp_path / "b.podium")
    blobs = MemoryBlobStore()
    take(other, blobs, tmp_path / "b.podium", "notes/b")
    assert read_agent(other, blobs, Address("notes", "b")).state == {"said": ["one", "two"]}
    assert problems(other, blobs) == []


async def test_a_changed_beginning_of_a_folded_archive_is_damage(folded: AgentHarness, tmp_path: Path) -> None:
    source, target = tmp_path / "folded.podium", tmp_path / "changed"

    def refused(change: Callable[[dict[str, Any]], object]) -> str:
        def edit(name: str, data: bytes) -> bytes:
            if name != "archive.json":
                return data
            manifest = json.loads(data)
            change(manifest)
            return json.dumps(manifest).encode()

        rewritten(source, target, edit)
        store = MemoryJournalStore()
        with pytest.raises(Corrupt) as caught:
            take(store, MemoryBlobStore(), target, "notes/a")
        assert list(store.sessions()) == []
        return str(caught.value).removeprefix(f"{target}: ")

    assert "does not follow the event before it" in refused(
        lambda manifest: manifest["base"].update(hash="v1:" + "0" * 64)
    )
    assert "does not begin where the one before ends" in refused(lambda manifest: manifest["base"].update(seq=1))
    assert "does not begin where the one before ends" in refused(lambda manifest: manifest.pop("base"))
    with zipfile.ZipFile(source) as archive:
        first, second, *more = archive.read("events/0.jsonl").splitlines()
    assert first
    begin = json.loads(second)

    def later(name: str, data: bytes) -> bytes:
        if name == "archive.json":
            manifest = json.loads(data)
            manifest["base"].update(seq=begin["seq"] - 1, hash=begin["prev_hash"])
            manifest["branches"][0]["after_seq"] = begin["seq"] - 1
            return json.dumps(manifest).encode()
        return b"\n".join([second, *more]) if name == "events/0.jsonl" else data

    rewritten(source, target, later)
    with pytest.raises(Corrupt, match="events/0.jsonl line 1: history cannot begin with user_message"):
        take(MemoryJournalStore(), MemoryBlobStore(), target, "notes/a")


async def test_equal_agents_make_equal_files(parent: AgentHarness, tmp_path: Path) -> None:
    export_agent(parent.store, parent.blobs, parent.address, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "a.podium").read_bytes()
    with pytest.raises(UnknownAgent):
        export_agent(parent.store, parent.blobs, Address("notes", "nobody"), tmp_path / "nobody")
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("journal")) == [
        "a.podium",
        "again",
    ]


async def test_every_damage_is_refused_and_nothing_is_written(parent: AgentHarness, tmp_path: Path) -> None:
    whole = (tmp_path / "a.podium").read_bytes()
    rng = random.Random(5)
    damaged = tmp_path / "damaged"
    for number in range(150):
        data = bytearray(whole)
        if number % 10 == 0:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        damaged.write_bytes(data)
        store, blobs = MemoryJournalStore(), MemoryBlobStore()
        try:
            take(store, blobs, damaged, "notes/a")
        except (Corrupt, UnsupportedFormat) as error:
            assert str(damaged) in str(error)  # noqa: PT017  some changes do no harm
            assert list(store.sessions()) == []
            assert list(blobs.blob_ids()) == []
        else:  # a bit that means nothing, such as a date in the table of contents
            assert (
                read_agent(store, blobs, parent.address).head
                == read_agent(parent.store, parent.blobs, parent.address).head
            )
            assert problems(store, blobs) == []


def rewritten(source: Path, target: Path, change: Any) -> None:
    """Copy an archive with members changed; ``None`` leaves one out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)


async def test_damage_is_named_by_its_place(parent: AgentHarness, tmp_path: Path) -> None:
    source, target = tmp_path / "a.podium", tmp_path / "changed"
    with zipfile.ZipFile(source) as archive:
        blob = next(name for name in archive.namelist() if name.startswith("blobs/"))

    def refused(change: Any) -> str:
        rewritten(source, target, change)
        with pytest.raises(ChronicleError) as caught:
            take(MemoryJournalStore(), MemoryBlobStore(), target, "notes/a")
        return str(caught.value).removeprefix(f"{target}: ")

    def events(change: Any) -> str:
        return refused(lambda name, data: b"\n".join(change(data.splitlines())) if name == "events/0.jsonl" else data)

    missing = refused(lambda name, data: None if name == blob else data)
    assert blob.removeprefix("blobs/") in missing
    assert missing.count("nothing was imported") == 1
    assert str(target) not in missing
    assert blob.removeprefix("blobs/") in refused(lambda name, data: data + b"x" if name == blob else data)
    assert events(lambda lines: [lines[0], *lines[2:]]).startswith("events/0.jsonl line 2: ")
    assert events(lambda lines: lines[:-1]).startswith("events/0.jsonl: ends at event ")
    assert events(lambda lines: [*lines[:2], b"{}", *lines[3:]]).startswith("events/0.jsonl line 3: not an event")
    assert events(lambda lines: [lines[0].replace(b"said", b"sold"), *lines[1:]]).startswith("events/0.jsonl line 1: ")
    assert "archive.json: it is missing" in refused(lambda name, data: None if name == "archive.json" else data)
    newer = json.dumps({"format": 99}).encode()
    assert "a newer version wrote" in refused(lambda name, data: newer if name == "archive.json" else data)


class Dying(MemoryJournalStore):
    """Dies after so many writes."""

    left = 10**6

    def _count(self) -> None:
        if self.left == 0:
            raise ChronicleError("died")
        self.left -= 1

    def ensure_session(self, *args: Any) -> Any:
        """Make a session, or die."""
        self._count()
        return super().ensure_session(*args)

    def import_session(self, *args: Any) -> Any:
        """Make a session that was folded, or die."""
        self._count()
        return super().import_session(*args)

    def fork_session(self, *args: Any) -> Any:
        """Fork a session, or die."""
        self._count()
        return super().fork_session(*args)

    def commit(self, commit: Any) -> Any:
        """Commit, or die."""
        self._count()
        return super().commit(commit)


@pytest.mark.parametrize("fold_first", [False, True])
async def test_an_import_that_died_anywhere_is_completed_by_the_same_import(
    parent: AgentHarness, tmp_path: Path, fold_first: bool
) -> None:
    if fold_first:
        fold_agent(parent.store, parent.blobs, parent.address, None, IdSource(), parent.clock.now_ms())
    fork_agent(parent.store, parent.address, 3, Address("notes", "b"), IdSource(), NOW_MS)
    export_agent(parent.store, parent.blobs, Address("notes", "b"), tmp_path / "b.podium")
    for writes in range(4):
        store, blobs = Dying(), MemoryBlobStore()
        store.left = writes
        with pytest.raises(ChronicleError, match="died"):
            take(store, blobs, tmp_path / "b.podium", "notes/b")
        store.left = 10**6
        take(store, blobs, tmp_path / "b.podium", "notes/b")
        assert (
            read_agent(store, blobs, Address("notes", "b")).head
            == read_agent(parent.store, parent.blobs, Address("notes", "b")).head
        )
        assert problems(store, blobs) == []
