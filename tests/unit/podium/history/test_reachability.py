"""What is reached: by the journal, and by layers that stand on what no journal has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from chronicle.workspace.check.verify import TreeChecker
from chronicle.workspace.gc_roots import layer_refs
from chronicle.workspace.history.commit_reachability import CommitReach
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec
from coordinator.verification import Verifier
from podium.address import Address
from podium.agent import AgentContext
from podium.agent_record import tree_of
from podium.history.branching import fork_agent, rewind_agent
from podium.history.delete import delete_agent
from podium.history.erase import erase_messages
from podium.history.fold import fold_agent
from podium.history.reachability import digest_of_roots, reachable_blobs
from podium.testing import AgentHarness, HarnessOptions
from tests.unit.podium.history import notes_agent
from tests.unit.podium.history.notes_agent import told

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.journal.port import JournalStore
    from chronicle.workspace.port import TreeRef


class Notes(notes_agent.Notes):
    """Keeps what it is told, and a large file in a directory for each of it."""

    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        below = ctx.workspace / "dir" / message["text"]
        below.mkdir(parents=True, exist_ok=True)
        (below / "large").write_bytes(message["text"].encode() * 100_000)
        await super().on_message(ctx, message)


async def test_what_is_reached_is_what_is_verified() -> None:
    async with AgentHarness(Notes, "a") as agent:
        for number in range(40):  # more versions of a path than are kept in its map
            await agent.send(f"{number}")
        await agent.send("fail")
        await agent.sleep()
        rewind_agent(agent.store, agent.blobs, agent.address, 1, None, IdSource(), agent.clock.now_ms())
        checker, reach = TreeChecker(agent.blobs), CommitReach(agent.blobs)
        for event, payload in agent.events():
            tree = tree_of(payload) if "." in event.type else None
            if tree is not None:
                checker.check(tree)
                reach.add(tree)
        assert len(reach.ids()) == checker.blobs
        assert reach.ids() == reachable_blobs(agent.store, agent.blobs, [])
        assert agent.blobs.missing(reach.ids()) == set()


async def test_the_digest_of_the_roots_changes_with_what_is_reached() -> None:
    async with AgentHarness(Notes, "a") as agent:
        store, ids = agent.store, IdSource()
        seen: set[str] = set()

        def changed(*layers: TreeRef) -> bool:
            digest = digest_of_roots(store, layers)
            assert digest == digest_of_roots(store, layers)
            is_new = digest not in seen
            seen.add(digest)
            return is_new

        await told(agent, "one", "two", "fail", "three")
        assert changed()
        assert not changed()
        twin = Address("notes", "b")
        fork_agent(store, agent.address, 1, twin, ids, agent.clock.now_ms())
        assert changed()
        (event,) = [event for event, _ in agent.events("user_message") if event.turn == 2]
        erase_messages(store, agent.address, [event.event_id])
        assert changed()
        rewind_agent(store, agent.blobs, agent.address, 1, None, ids, agent.clock.now_ms())
        assert changed()
        fold_agent(store, agent.blobs, twin, None, ids, agent.clock.now_ms())
        assert changed()
        delete_agent(store, agent.blobs, twin, ids, agent.clock.now_ms())
        assert changed()
        tree = tree_of(agent.events("turn.committed")[0][1])
        assert tree is not None
        assert changed(tree)
        assert not changed(tree, tree)


def collected(store: JournalStore, url: str, layers: Path) -> int:
    """Collect at once, and return how many packs went."""
    blobs = PackBlobStore(url)
    report = collect(url, lambda: reachable_blobs(store, blobs, layer_refs(layers)), GcRules(alone=True, keep_from=1.0))
    blobs.close()
    return report.dropped


async def test_a_collection_keeps_what_an_agent_without_turns_stands_on(tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'blobs'}"
    (tmp_path / "blobs").mkdir()
    blobs = PackBlobStore(url)
    async with AgentHarness(Notes, "a", blobs=blobs, options=HarnessOptions(directory=tmp_path / "work")) as agent:
        layers = tmp_path / "work" / "layers"
        assert list(layer_refs(layers)) != []
        assert collected(agent.store, url, layers) == 0
        await agent.send("one")
        await agent.sleep()
        await agent.send("fail")
        await agent.sleep()
        assert collected(agent.store, url, layers) == 0
        await agent.send("two")
        assert Verifier(agent.store, PackBlobStore(url)).check(agent.store.session("notes/a")).problem is None


def test_layers_of_mounts_are_looked_at(tmp_path: Path) -> None:
    layer, _ = open_layer(LayerSpec("w", tmp_path, None, 1, 1), MemoryBlobStore(), ManualClock())
    base = layer.base
    assert set(layer_refs(tmp_path)) == {base}
    layer.create(layer.root, b"a", 0o644, *layer.owner)
    sealed = layer.seal()
    assert set(layer_refs(tmp_path)) == {base, sealed}
    layer.adopt(sealed)
    assert set(layer_refs(tmp_path)) == {sealed}
    layer.close()
