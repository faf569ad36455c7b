"""Folding the history of agents, through the real activation, on each journal store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.errors import Corrupt, Unavailable
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.verify import Anchor, verify_session
from podium.address import Address
from podium.agent import Retention
from podium.agent_record import find_session, read_agent, turn_end_seq
from podium.errors import AgentAwake, AgentInUse, UnknownAgent, UnknownMoment
from podium.events import AGENT_SNAPSHOT
from podium.history.branching import fork_agent, rewind_agent
from podium.history.compare import compare
from podium.history.fold import Folded, fold_agent
from podium.history.reachability import reachable_blobs
from podium.testing import AgentHarness, HarnessOptions
from tests.unit.podium.history.notes_agent import Notes, problems, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Branch, Commit, Head
    from chronicle.workspace.port import Iteration


def fold(
    agent: AgentHarness, retention: Retention | None = None, *, key: str | None = None, dry_run: bool = False
) -> Folded:
    address = Address("notes", key) if key else agent.address
    now_ms = agent.clock.now_ms()
    return fold_agent(agent.store, agent.blobs, address, retention, IdSource(), now_ms, dry_run=dry_run)


def fork(agent: AgentHarness, turn: int | None, key: str) -> None:
    fork_agent(agent.store, agent.address, turn, Address("notes", key), IdSource(), agent.clock.now_ms())


def branch_of(agent: AgentHarness) -> Branch:
    return agent.store.branch(find_session(agent.store, agent.address).main_branch_id)


def types(agent: AgentHarness) -> list[str]:
    return [event.type for event, _ in agent.events()]


def versions(agent: AgentHarness) -> list[Iteration]:
    return list(agent.activation.workspace.history("notes.txt"))


async def test_only_what_the_agent_is_now_is_left(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one", "two", "three")
        before = branch_of(agent)
        folded = fold(agent)
        assert (folded.marked, folded.first_turn, folded.later.events) == (True, 3, 0)
        assert (folded.dropped.events, folded.dropped.turns) == (before.head.seq, 3)
        assert folded.dropped.size_bytes > 100
        assert types(agent) == [AGENT_SNAPSHOT]
        assert (folded.head.turn, folded.head.seq) == (3, before.head.seq + 1)
        assert agent.state == {"said": ["one", "two", "three"]}
        assert problems(store, agent.blobs) == []
        for turn in range(3):
            with pytest.raises(UnknownMoment, match="not kept any more"):
                read_agent(store, agent.blobs, agent.address, turn)
            with pytest.raises(UnknownMoment, match="not kept any more"):
                turn_end_seq(store, agent.address, folded.head, turn)
        await agent.send("four")
        assert agent.state == {"said": ["one", "two", "three", "four"]}
        assert (agent.workspace / "notes.txt").read_text() == "one\ntwo\nthree\nfour"
        assert [version.iteration for version in versions(agent)] == [1, 2, 3, 4]
        assert agent.activation.workspace.at("notes.txt", 1).read() == b"one"
        assert read_agent(store, agent.blobs, agent.address, 3).state == {"said": ["one", "two", "three"]}
        assert problems(store, agent.blobs) == []


async def test_doing_it_again_changes_nothing(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one")
        first = fold(agent)
        again = fold(agent)
        assert (again.marked, again.dropped.events, again.head) == (False, 0, first.head)
        assert types(agent) == [AGENT_SNAPSHOT]


async def test_a_dry_run_says_what_would_be_done(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one", "two")
        before, lease = branch_of(agent), store.lease(find_session(store, agent.address).session_id)
        would = fold(agent, dry_run=True)
        assert branch_of(agent) == before
        assert store.lease(find_session(store, agent.address).session_id) == lease
        did = fold(agent)
        assert (would.marked, would.dropped, would.first_turn) == (did.marked, did.dropped, did.first_turn)


async def test_what_is_to_be_kept_is_kept_from_a_mark_on(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, *"abcd")
        first = fold(agent, Retention(turns=3))
        assert (first.marked, first.dropped.events) == (True, 0)
        assert first.later_mark is not None
        assert (first.later.turns, first.later_mark.turn) == (4, 4)
        await told(agent, "e", "f")
        assert fold(agent, Retention(turns=3)).dropped.events == 0
        await told(agent, "g")
        second = fold(agent, Retention(turns=3))
        assert (second.dropped.events, second.dropped.turns, second.first_turn) == (first.later.events, 4, 4)
        assert (second.marked, second.later.turns) == (True, 3)
        assert read_agent(store, agent.blobs, agent.address, 4).state == {"said": [*"abcd"]}
        assert read_agent(store, agent.blobs, agent.address, 5).state == {"said": [*"abcde"]}
        with pytest.raises(UnknownMoment):
            read_agent(store, agent.blobs, agent.address, 3)
        assert problems(store, agent.blobs) == []


class Kept(Notes):
    retention: ClassVar[Retention | None] = Retention(turns=8)


async def test_a_class_says_how_much_is_kept(store: JournalStore) -> None:
    async with AgentHarness(Kept, "a", store=store) as agent:
        for turn in range(1, 41):
            await told(agent, f"{turn}")
            first = next(event for event, _ in agent.events()).turn
            assert turn - first <= 8 + 8 // 4
            assert first == 0 or turn - first >= 8
            assert read_agent(store, agent.blobs, agent.address, first).turn == first
        assert agent.state == {"said": [f"{turn}" for turn in range(1, 41)]}
        assert 4 <= types(agent).count(AGENT_SNAPSHOT) <= 6
        assert problems(store, agent.blobs) == []
        await agent.send("more")
        assert [version.iteration for version in versions(agent)] == [*range(1, 42)]


async def test_days_are_counted_by_the_clock(store: JournalStore) -> None:
    class Daily(Notes):
        retention: ClassVar[Retention | None] = Retention(days=4)

    async with AgentHarness(Daily, "a", store=store) as agent:
        for day in range(1, 15):
            await told(agent, f"{day}")
            agent.clock.advance(86_400)
        first = next(event for event, _ in agent.events())
        assert first.type == AGENT_SNAPSHOT
        assert 4 <= 14 - first.turn <= 5
        assert problems(store, agent.blobs) == []


async def test_an_agent_that_only_slept_gets_no_mark(store: JournalStore) -> None:
    async with AgentHarness(Kept, "a", store=store) as agent:
        await told(agent, *"abcdefgh")
        events = types(agent)
        agent.clock.advance(90 * 86_400)
        await agent.send("i")
        await agent.sleep()
        assert types(agent)[: len(events)] == events
        before = branch_of(agent)
        async with AgentHarness(Kept, "a", store=store, blobs=agent.blobs, clock=agent.clock):
            pass
        assert branch_of(agent).head == before.head


async def test_what_forks_read_is_not_dropped(store: JournalStore) -> None:
    async with AgentHarness(Kept, "a", store=store) as agent:
        await told(agent, *"abcdefgh")
        fork(agent, 3, "b")
        before = branch_of(agent)
        with pytest.raises(AgentInUse, match=r"read by its forks notes/b, so nothing of it was dropped") as caught:
            fold(agent)
        assert caught.value.forks == ("notes/b",)
        assert branch_of(agent) == before
        for text in "ijklmnopqrstuvwxyz":
            await told(agent, text)
        assert branch_of(agent).folded_seq == 0
        assert types(agent).count(AGENT_SNAPSHOT) <= 6  # they do not pile up while nothing can be dropped
        assert fold(agent, key="b").first_turn == 3  # now it stands on its own
        fold(agent)
        assert len(agent.state["said"]) == 26  # type: ignore[arg-type]
        assert problems(store, agent.blobs) == []
        async with AgentHarness(Notes, "b", store=store, blobs=agent.blobs) as child:
            assert child.state == {"said": ["a", "b", "c"]}
            assert (child.workspace / "notes.txt").read_text() == "a\nb\nc"


async def test_a_fork_that_never_woke_is_folded(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one", "two")
        parent = branch_of(agent)
        now_ms = agent.clock.now_ms()
        ids = IdSource()
        store.fork_session(parent.head.branch_id, 3, "notes/b", ids.session(now_ms), ids.branch(now_ms), now_ms)
        folded = fold(agent, key="b")  # its first event is missing: the fork died half-way
        assert (folded.dropped.events, folded.dropped.turns, folded.first_turn) == (0, 1, 1)
        assert problems(store, agent.blobs) == []
        async with AgentHarness(Notes, "b", store=store, blobs=agent.blobs) as child:
            assert (types(child), child.state) == ([AGENT_SNAPSHOT], {"said": ["one"]})


async def test_forks_and_going_back_within_what_is_kept(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one", "two")
        fold(agent)
        await told(agent, "three", "four")
        with pytest.raises(UnknownMoment, match="not kept any more"):
            fork(agent, 1, "x")
        with pytest.raises(UnknownMoment, match="not kept any more"):
            rewind_agent(store, agent.blobs, agent.address, 1, None, IdSource(), 0)
        fork(agent, 2, "b")
        fork(agent, 3, "c")
        for key, said in {"b": ["one", "two"], "c": ["one", "two", "three"]}.items():
            async with AgentHarness(Notes, key, store=store, blobs=agent.blobs) as child:
                assert child.state == {"said": said}
                assert (child.workspace / "notes.txt").read_text() == "\n".join(said)
        compared = compare(store, agent.blobs, (Address("notes", "b"), None), (agent.address, None))
        assert [event.type for event in compared.added] == ["user_message", "user_message"]
        rewind_agent(store, agent.blobs, agent.address, 2, None, IdSource(), agent.clock.now_ms())
        assert agent.state == {"said": ["one", "two"]}
        assert problems(store, agent.blobs) == []


async def test_numbers_of_versions_that_were_given_up_are_not_given_out_again(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one")
        await told(agent, "fail")  # three tries, each with a version of its own
        fold(agent)
        fold(agent)
        (_, payload) = agent.events()[-1]
        assert len(payload["given_up"]) == 3  # type: ignore[arg-type]
        rewind_agent(store, agent.blobs, agent.address, 1, None, IdSource(), agent.clock.now_ms())
        assert branch_of(agent).head.turn == 1  # it is there already
        await told(agent, "two")
        rewind_agent(store, agent.blobs, agent.address, 1, ["files"], IdSource(), agent.clock.now_ms())
        await agent.send("three")
        numbers = [version.iteration for version in versions(agent)]
        assert numbers[0] == 1
        assert min(numbers[1:]) > 4
        assert problems(store, agent.blobs) == []


async def test_an_agent_that_is_awake_is_refused(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        with pytest.raises(UnknownAgent):
            fold(agent, key="b")
        await agent.send("one")
        with pytest.raises(AgentAwake, match="notes/a is awake"):
            fold(agent)
        await agent.send("two")
        assert agent.state == {"said": ["one", "two"]}


async def test_heads_that_were_kept_still_verify_or_say_that_they_were_folded(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one")
        early = Anchor.of(branch_of(agent).head)
        await told(agent, "two")
        last = Anchor.of(branch_of(agent).head)
        fold(agent)
        await told(agent, "three")
        session = find_session(store, agent.address)
        assert verify_session(store, session, [last, Anchor.of(branch_of(agent).head)]).ok
        assert "it was folded" in str(verify_session(store, session, [early]).damage)


async def test_a_repeat_of_a_message_whose_record_was_dropped_gets_an_end(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        assert (await agent.send("one", idempotency_key="k1")).ok
        assert not (await agent.send("fail", idempotency_key="k2")).ok
        await agent.sleep()
        fold(agent)
        for key, text, parked in (("k1", "one", False), ("k2", "fail", True)):
            again = await agent.send(text, idempotency_key=key)
            assert again.receipt.repeated
            assert again.error is not None
            assert again.error["type"] == "HistoryDropped"
            assert again.frames[-1]["parked"] is parked
        assert agent.state == {"said": ["one"]}


class Dying(MemoryJournalStore):
    """A journal whose process dies in front of a write, or after it."""

    def __init__(self) -> None:
        super().__init__()
        self.die_at: Callable[[str], bool] = lambda _: False

    def commit(self, commit: Commit) -> Head:
        if self.die_at("before commit"):
            raise KeyboardInterrupt
        head = super().commit(commit)
        if self.die_at("after commit"):
            raise KeyboardInterrupt
        return head

    def fold(self, branch_id: Any, before_seq: int, now_ms: int) -> Branch:
        if self.die_at("before fold"):
            raise KeyboardInterrupt
        branch = super().fold(branch_id, before_seq, now_ms)
        if self.die_at("after fold"):
            raise KeyboardInterrupt
        return branch


@pytest.mark.parametrize("point", ["before commit", "after commit", "before fold", "after fold"])
async def test_a_death_at_any_point_leaves_a_good_agent(point: str) -> None:
    store = Dying()
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one", "two")
        store.die_at = lambda here: here == point
        with pytest.raises(KeyboardInterrupt):
            fold(agent)
        store.die_at = lambda _: False
        assert agent.state == {"said": ["one", "two"]}
        assert problems(store, agent.blobs) == []
        agent.clock.advance(60)  # its lease runs out
        folded = fold(agent)
        assert folded.dropped.events == (0 if point == "after fold" else 5)
        assert types(agent) == [AGENT_SNAPSHOT]
        await agent.send("three")
        assert agent.state == {"said": ["one", "two", "three"]}
        assert problems(store, agent.blobs) == []


class Away(MemoryJournalStore):
    """A journal that goes away when history is to be dropped."""

    away = False

    def fold(self, branch_id: Any, before_seq: int, now_ms: int) -> Branch:
        if self.away:
            raise Unavailable("as told")
        return super().fold(branch_id, before_seq, now_ms)


async def test_an_agent_goes_to_sleep_although_nothing_can_be_dropped(caplog: pytest.LogCaptureFixture) -> None:
    store = Away()
    async with AgentHarness(Kept, "a", store=store) as agent:
        for text in "abcdefghi":
            await told(agent, text)
        store.away = True
        await told(agent, "j", "k")
        assert "history_not_folded" in caplog.text
        assert not agent.awake
        store.away = False
        await told(agent, "l")
        assert branch_of(agent).folded_seq > 0
        assert problems(store, agent.blobs) == []


async def test_a_process_that_lost_the_lease_makes_no_mark(store: JournalStore) -> None:
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, "one")
        session = find_session(store, agent.address)
        lease = store.acquire_lease(session.session_id, "old", agent.clock.now_ms(), 1)
        agent.clock.advance(1)
        await agent.send("two")
        head = branch_of(agent).head
        held = [(session.session_id, lease.epoch)]
        assert store.renew_leases(held, agent.clock.now_ms(), 1) == [session.session_id]
        assert branch_of(agent).head == head


class Folding(MemoryJournalStore):
    """A journal whose history is dropped while somebody reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def events(self, *args: Any, **options: Any) -> Any:
        for number, event in enumerate(list(super().events(*args, **options))):
            if number == 1 and self.meanwhile is not None:
                act, self.meanwhile = self.meanwhile, None
                act()
            found = self.find_event(event.event_id)
            if found is not None:
                yield found


async def test_reading_goes_on_when_history_is_dropped_meanwhile() -> None:
    store = Folding()
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, *"abcde")
        store.meanwhile = lambda: fold(agent)
        with pytest.raises(UnknownMoment, match="not kept any more"):
            read_agent(store, agent.blobs, agent.address, 4)
        await told(agent, "f", "g")
        store.meanwhile = lambda: fold(agent)
        assert read_agent(store, agent.blobs, agent.address).state == {"said": [*"abcdefg"]}
        await told(agent, "h", "i")
        store.meanwhile = lambda: fold(agent)
        assert problems(store, agent.blobs) == []


async def test_a_gap_in_what_was_not_dropped_is_damage() -> None:
    store = Folding()
    async with AgentHarness(Notes, "a", store=store) as agent:
        await told(agent, *"abcde")
        with store._db.writing() as db:
            db.execute("DELETE FROM event WHERE id & 4294967295 IN (3, 4)")
        with pytest.raises(Corrupt, match="the turns between are missing"):
            read_agent(store, agent.blobs, agent.address)


async def test_a_collection_keeps_what_is_left_and_nothing_else(tmp_path: Path) -> None:
    """A state and messages out of line, in a store of files: what the dropped events had is freed, and only that."""

    class Large(Notes):
        async def on_message(self, ctx: Any, message: dict[str, Any]) -> None:
            await super().on_message(ctx, {"text": message["text"][:1]})
            ctx.state.said[-1] = message["text"]

    url = f"file://{tmp_path / 'blobs'}"
    (tmp_path / "blobs").mkdir()
    blobs = PackBlobStore(url)
    async with AgentHarness(Large, "a", blobs=blobs, options=HarnessOptions(directory=tmp_path / "work")) as agent:
        for letter in "abcd":
            await agent.send(letter * 100_000)
        await agent.sleep()
        refs = {event.payload_ref for event in agent.store.events(branch_of(agent).head.branch_id) if event.payload_ref}
        assert len(refs) == 8  # a message and a patch each
        fold(agent)
        (mark,) = agent.store.events(branch_of(agent).head.branch_id)
        assert mark.payload_ref is not None
        needed = reachable_blobs(agent.store, blobs, [])
        assert mark.payload_ref in needed
        assert not needed & refs
        blobs.close()
        fresh = PackBlobStore(url)
        report = collect(url, lambda: reachable_blobs(agent.store, fresh, []), GcRules(alone=True, keep_from=1.0))
        assert report.dropped_bytes > 0
        fresh.close()
        agent.blobs = last = PackBlobStore(url)
        assert last.missing(needed) == set()
        assert last.missing(refs) == refs
        assert problems(agent.store, last) == []
        await agent.send("e")
        assert [text[:1] for text in agent.state["said"]] == [*"abcde"]  # type: ignore[index, union-attr]
        assert agent.activation.workspace.at("notes.txt", 2).read() == b"a" * 100_000 + b"\nb"
        await agent.sleep()
        last.close()
