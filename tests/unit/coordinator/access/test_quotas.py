"""Quotas of tenants: what is refused, for how long, and that tenants do not share them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from structlog.testing import capture_logs

import coordinator.home
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import IdempotencyConflict
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import NewMessage
from coordinator.access.quotas import MessageQuotaExceeded, Quota, QuotaExceeded, Quotas
from coordinator.access.stored_quotas import FollowedQuotas, StoredQuotas
from coordinator.client_messages import Admission
from coordinator.homes.opening import open_records
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import AskRefused
from podium.messages.asking import StoreAsker
from podium.messages.inbox import drop_message
from podium.tasks import beside
from podium.testing import AgentHarness
from podium.turn.busy import BusyPolicy
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore

IDS = IdSource()
ASKER = Address("writing", "asker", "acme")


class Counting(MemoryBlobStore):
    """Counts the blobs that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def get(self, blob_id: BlobId) -> bytes:
        self.reads += 1
        return super().get(blob_id)


class Writing(BaseAgent):
    """Writes as many bytes as it is told, or hands them out."""

    agent_type = "writing"

    class State(DeltaState):
        _entity_type = "writing"
        _version = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        content = b"x" * message["size"]
        if message.get("artifact"):
            await ctx.add_artifact("data", content)
        else:
            (ctx.workspace / "data").write_bytes(content)


class Home:
    """A journal, and quotas of the tenant ``acme``."""

    def __init__(self, **quota: int) -> None:
        self.store = MemoryJournalStore()
        self.blobs = Counting()
        self.clock = ManualClock()
        self.quotas = {"acme": Quota(**quota)}
        self.checks = Quotas(lambda: self.quotas, self.store, self.blobs, self.clock)
        self._admission = Admission(self.store, self.blobs, IDS, self.clock, 1000, self.checks.check)

    def send(self, key: str, tenant: str = "acme", idempotency_key: str | None = None, body: bytes = b"{}") -> str:
        address = Address("writing", key, tenant)
        return self._admission.admit(address, body, idempotency_key, BusyPolicy.ENQUEUE).message_id

    def wake(self, key: str) -> None:
        session = self.store.session(f"writing/{key}", "acme")
        self.store.acquire_lease(session.session_id, "host", self.clock.now_ms(), 60_000)

    def sleep(self, key: str) -> None:
        session = self.store.session(f"writing/{key}", "acme")
        self.store.release_lease(session.session_id, 1)

    def count(self, tenant: str = "acme") -> int:
        return sum(len(self.store.pending(session.session_id)) for session in self.store.sessions(namespace=tenant))


def test_messages_per_minute() -> None:
    home = Home(messages_per_minute=3)
    for _ in range(2):
        home.send("a")
    home.clock.advance(30.0)
    home.send("b")
    with pytest.raises(MessageQuotaExceeded, match="3 messages a minute; try again in 30 s"):
        home.send("c")
    home.send("c", "zeta")
    assert (home.count(), home.count("zeta")) == (3, 1)
    home.clock.advance(30.0)
    home.send("c")
    home.send("c")
    with pytest.raises(MessageQuotaExceeded):
        home.send("c")


def test_agents() -> None:
    home = Home(agents=2)
    for key in ("a", "b", "a"):
        home.send(key)
    with pytest.raises(QuotaExceeded, match="may have 2 agents"):
        home.send("c")
    assert [session.name for session in home.store.sessions(namespace="acme")] == ["writing/a", "writing/b"]
    home.send("c", "default")
    home.store.delete_session(home.store.session("writing/a", "acme").session_id, home.clock.now_ms())
    home.clock.advance(11.0)
    home.send("c")


def test_agents_that_do_not_exist_yet_count() -> None:
    home = Home(agents=2)
    admitted = [Address("writing", key, "acme") for key in "ab"]
    for address in (*admitted, admitted[0]):
        home.checks.check(address, 2)
    with pytest.raises(QuotaExceeded, match="may have 2 agents"):
        home.send("c")
    home.clock.advance(11.0)
    home.send("c")


class Counted:
    """A journal that counts the calls of its methods."""

    def __init__(self, store: JournalStore) -> None:
        self._store = store
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return getattr(self._store, name)


def test_a_check_does_not_ask_for_each_agent() -> None:
    home = Home(agents=100, awake_agents=100)
    counted = Counted(home.store)
    checks = Quotas(lambda: home.quotas, cast("JournalStore", counted), home.blobs, home.clock)
    calls: list[int] = []
    for total in (2, 60):
        for key in range(total):
            home.send(f"{key}")
            home.wake(f"{key}")
        home.clock.advance(11.0)
        counted.calls = 0
        checks.check(Address("writing", f"new-{total}", "acme"), 2)
        calls.append(counted.calls)
    assert calls[0] == calls[1] <= 3


def test_agents_that_are_awake() -> None:
    home = Home(awake_agents=1)
    home.send("a")
    home.wake("a")
    home.send("a")
    with pytest.raises(QuotaExceeded, match="1 agents awake"):
        home.send("b")
    home.clock.advance(11.0)
    with pytest.raises(QuotaExceeded):
        home.send("b")
    home.sleep("a")
    home.clock.advance(1.0)
    home.send("b")
    with pytest.raises(QuotaExceeded):  # it is about to wake
        home.send("a")


def test_reads_count_as_messages_and_are_refused_where_an_agent_would_be_woken() -> None:
    home = Home(messages_per_minute=3, awake_agents=1, agents=1, bytes=1)
    a, b = (Address("writing", key, "acme") for key in "ab")
    home.checks.check_read(a)
    with pytest.raises(QuotaExceeded, match="1 agents awake"):  # "a" is about to wake
        home.checks.check_read(b)
    home.checks.check_read(a)
    home.checks.check_read(a)
    with pytest.raises(MessageQuotaExceeded):
        home.checks.check_read(a)
    with pytest.raises(MessageQuotaExceeded):
        home.send("a")
    home.checks.check_read(Address("writing", "a", "zeta"))
    home.clock.advance(60.0)
    home.checks.check_read(b)
    assert home.count() == 0


async def test_bytes_of_files() -> None:
    home = Home(bytes=20_000)
    home.send("new")
    async with AgentHarness(Writing, "a", store=home.store, blobs=home.blobs, tenant="acme") as agent:
        await agent.send({"size": 30_000})
        home.send("new")  # the sum is a minute old at most
        home.clock.advance(60.0)
        with pytest.raises(QuotaExceeded, match="have 3[0-9]{4} bytes, and may have 20000"):
            home.send("new")
        home.send("new", "default")
        await agent.send({"size": 10})
    home.clock.advance(60.0)
    with pytest.raises(QuotaExceeded, match="earlier versions of files count until their agent is deleted"):
        home.send("new")
    home.store.delete_session(home.store.session("writing/a", "acme").session_id, home.clock.now_ms())
    home.clock.advance(60.0)
    home.send("new")


async def test_a_sum_of_bytes_reads_the_agents_that_had_a_turn_since_the_last_one() -> None:
    home = Home(bytes=1_000_000)

    def reads() -> int:
        home.clock.advance(60.0)
        before = home.blobs.reads
        home.checks.check_content("acme", 0)
        return home.blobs.reads - before

    async with AsyncExitStack() as stack:
        agents = [
            await stack.enter_async_context(
                AgentHarness(Writing, key, store=home.store, blobs=home.blobs, tenant="acme")
            )
            for key in "abcd"
        ]
        for agent in agents:
            await agent.send({"size": 1000})
        of_all = reads()
        assert of_all >= 4
        assert reads() == 0
        await agents[2].send({"size": 2000})
        assert 0 < reads() <= of_all / 4
        assert reads() == 0


async def test_no_quota_is_exceeded_by_what_was_erased() -> None:
    home = Home(bytes=50_000)
    async with AgentHarness(Writing, "a", store=home.store, blobs=home.blobs, tenant="acme") as agent:
        await agent.send({"size": 35_000, "artifact": True})
        home.send("new")
        home.store.erase([event.event_id for event, _ in agent.events("artifact.added")])
        home.clock.advance(60.0)
        home.checks.check_content("acme", 20_000)
        home.checks.check_content("acme", 20_000)


async def test_bytes_of_files_that_are_written_again_and_again() -> None:
    home = Home(bytes=100_000)
    async with AgentHarness(Writing, "a", store=home.store, blobs=home.blobs, tenant="acme") as agent:
        for number in range(100):
            try:
                home.send("new")
            except QuotaExceeded:
                break
            await agent.send({"size": 10_000 + number})
            home.clock.advance(60.0)
    assert 5 < number < 11


def test_a_repetition_is_no_further_message() -> None:
    home = Home(messages_per_minute=1)
    first = home.send("a", idempotency_key="once")
    assert home.send("a", idempotency_key="once") == first
    with pytest.raises(IdempotencyConflict):
        home.send("a", idempotency_key="once", body=b'{"other":1}')
    for agent, key in (("a", "again"), ("a", None), ("b", "once")):
        with pytest.raises(MessageQuotaExceeded):
            home.send(agent, idempotency_key=key)
    assert home.count() == 1


def test_forks_count_as_agents() -> None:
    home = Home(agents=1)
    fork = Address("writing", "fork", "acme")
    home.checks.check_fork(fork)
    home.send("a")
    with pytest.raises(QuotaExceeded, match="may have 1 agents"):
        home.checks.check_fork(fork)
    home.checks.check_fork(Address("writing", "fork"))
    home.checks.check_fork(Address("writing", "a", "acme"))


def test_uploads_count_as_bytes() -> None:
    home = Home(bytes=1000)
    address = Address("writing", "a", "acme")
    with pytest.raises(QuotaExceeded, match="have 0 bytes, and may have 1000: a file of 1001 bytes is too large"):
        home.checks.check_upload(address, 1001)
    home.checks.check_upload(address, 600)
    with pytest.raises(QuotaExceeded, match="have 600 bytes"):
        home.checks.check_upload(address, 600)
    home.checks.check_upload(address, 400)
    with pytest.raises(QuotaExceeded, match="have 1000 bytes, and may have 1000"):
        home.checks.check_upload(address, 0)
    with pytest.raises(QuotaExceeded, match="have 1000 bytes, and may have 1000"):
        home.checks.check_fork(address)
    home.checks.check_upload(Address("writing", "a"), 5000)
    home.clock.advance(60.0)
    home.checks.check_upload(address, 1000)  # what was counted is not in any agent's files


async def test_a_damaged_agent_does_not_stop_the_others_of_its_tenant() -> None:
    home = Home(bytes=20_000)
    async with AgentHarness(Writing, "a", store=home.store, blobs=home.blobs, tenant="acme") as agent:
        await agent.send({"size": 30_000})
    damaged = Quotas(lambda: home.quotas, home.store, MemoryBlobStore(), home.clock)  # its blobs are lost
    with capture_logs() as logs:
        damaged.check(Address("writing", "b", "acme"), 2)
    assert [(line["event"], line["agent_id"]) for line in logs] == [("bytes_not_counted", "acme:writing/a")]


def test_a_quota_of_nothing_and_none_at_all() -> None:
    for quota in ({"agents": 0}, {"awake_agents": 0}, {"bytes": 0}, {"messages_per_minute": 0}):
        home = Home(**quota)
        with pytest.raises(QuotaExceeded):
            home.send("a")
        assert not home.store.sessions()
        home.quotas = {}
        home.send("a")


def test_quotas_are_read_from_the_home_as_they_are_now(tmp_path: Path) -> None:
    records = open_records(coordinator.home.Home(tmp_path).create())
    with closing(StoredQuotas(records.quotas)) as stored:
        assert stored() == {}
        records.set_quotas({})
        assert not (tmp_path / "access.db").exists()
        records.set_quotas({"acme": Quota(agents=3)})
        assert stored() == {"acme": Quota(agents=3)}
        records.set_quotas({"zeta": Quota(bytes=5)})
        assert stored() == {"zeta": Quota(bytes=5)}


@pytest.mark.parametrize(
    ("quota", "why"),
    [
        ({"agents": 1}, "the tenant acme may have 1 agents, and has them"),
        ({"awake_agents": 1}, "the tenant acme may have 1 agents awake, and has them"),
    ],
)
async def test_a_question_is_refused_unless_it_was_sent_before(quota: dict[str, int], why: str) -> None:
    home = Home(**quota)
    home.send("asker")
    home.wake("asker")
    question = NewMessage(IDS.message(0), b"{}", 0, "ask:1", "acme:writing/asker")
    waiting: set[Any] = set()  # tasks that have found the question pending, and so wait for the end of that one

    async def run_store(call: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        answer = await asyncio.to_thread(call, *arguments, **named)
        if call == home.store.message:
            waiting.add(asyncio.current_task())
        return answer

    waking: set[Any] = set()  # tasks: one that admits and wakes for each question, then the asker's own

    async def wake(_: Address) -> None:
        waking.add(asyncio.current_task())

    asker = StoreAsker(home.store, home.blobs, IDS, run_store, wake, check=home.checks.check_ask)
    expert = Address("writing", "expert", "acme")
    with pytest.raises(AskRefused, match=f"writing/expert was not asked: {why}"):
        await asker.ask(ASKER, expert, question, _not_noticed)
    assert home.count() == 1, "nothing was sent"

    home.quotas = {}
    going = asyncio.create_task(asker.ask(ASKER, expert, question, _not_noticed))
    await until(lambda: going in waiting)
    assert len(waking - {going}) == 1
    home.quotas = {"acme": Quota(**quota)}
    home.clock.advance(20.0)
    again = asyncio.create_task(asker.ask(ASKER, expert, replace(question, message_id=IDS.message(0)), _not_noticed))
    await until(lambda: again in waiting)
    assert len(waking - {going, again}) == 2
    assert home.count() == 2
    session = home.store.session("writing/expert", "acme")
    drop_message(home.store, session, question.message_id, IDS, 0)
    (_, first), (_, second) = await going, await again
    assert first[-1]["type"] == second[-1]["type"] == "error"


def _not_noticed(path: object) -> None:
    raise AssertionError(f"agents wait for each other: {path}")


async def test_followed_quotas_are_read_beside_the_event_loop() -> None:
    may_answer, changes = threading.Event(), Counter[str]()
    quotas = {"acme": Quota(agents=1)}

    def read() -> dict[str, Quota]:
        assert may_answer.wait(60)
        return dict(quotas)

    followed = FollowedQuotas(read, lambda: changes.update(["changed"]))
    updating = asyncio.create_task(followed.update())
    await asyncio.sleep(0)
    assert followed() == {}
    may_answer.set()
    await updating
    assert (followed(), changes.total()) == (quotas, 1)
    await followed.update()
    assert changes.total() == 1
    del quotas["acme"]
    with beside(followed.follow()):
        await until(lambda: changes.total() == 2)
    assert followed() == {}
