"""What `podium why` says an agent waits for, from what the journal and the fleet know."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus, NewMessage, OutboxMessage
from chronicle.testing.journal_contract.writer import Writer
from coordinator.access.quotas import Quota
from coordinator.fleet.facts import agent_facts, node_facts, unreachable_node
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.liveness import fate_of_silent
from coordinator.fleet.model import Code, Loaded, Placement
from coordinator.fleet.nodes.nodes import LOCAL_NODE, Node, needs_of
from coordinator.fleet.state import FleetState
from coordinator.operations.explaining import why_object
from coordinator.operations.objects import Outbox
from podium.address import Address
from podium.agent import AgentContext, BaseAgent
from podium.agent.models.delta_state import DeltaState
from podium.errors import HostDied, UnknownAgent
from podium.testing import AgentHarness

if TYPE_CHECKING:
    from coordinator.operations.objects import Why

ALICE, BOB = Address("hello", "alice"), Address("hello", "bob")


class Home:
    """A journal with an agent that sleeps, and a fleet that knows its class."""

    def __init__(self, tmp_path: Path) -> None:
        file = tmp_path / "hello.py"
        file.write_text("")
        self.code = Code(str(file), "Hello", "hello")
        self.clock, self.store, self.ids = ManualClock(), MemoryJournalStore(), IdSource()
        self.state = FleetState(self.store, self.clock, self.ids)
        self.state.codes.register(self.code)
        self.session = self.store.ensure_session(ALICE.name, self.ids.session(0), self.ids.branch(0), 0)

    def admit(self) -> None:
        self.store.admit(self.session.session_id, NewMessage(self.ids.message(0), b"{}", 0))

    def tell(self, *receivers: Address) -> None:
        """Send messages of another agent."""
        outbox = tuple(OutboxMessage(self.ids.message(0), to.name, b"{}", 7, namespace=to.tenant) for to in receivers)
        Writer.on(self.store, "sender/s").write(outbox=outbox)

    def why(self, *, service: bool = True, **of_host: Any) -> Why:
        facts = agent_facts(self.state, ALICE) if service else None
        if facts is not None and facts["host"] is not None:
            facts["host"] = {**facts["host"], **of_host}  # type: ignore[typeddict-item]
        return why_object(self.store, None, ALICE, facts, self.clock.now_ms())  # type: ignore[arg-type]

    def host(self, **values: Any) -> None:
        self.state.hosts.add(Host("host_1", self.code, "", HostStatus.WARM))
        self.state.hosts.place(Placement("host_1", ALICE, **values))


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


async def test_a_sleeping_agent_waits_for_a_message_or_a_service(home: Home) -> None:
    assert home.why().waits_for == home.why(service=False).waits_for == "a message"
    home.admit()
    assert home.why(service=False).waits_for == "a service: none runs"
    assert (home.why().pending, home.why().status) == (1, "asleep")


async def test_an_agent_whose_class_is_not_there_waits_for_it(home: Home) -> None:
    home.admit()
    home.state.codes.drop(home.code, "it has a syntax error")
    why = home.why()
    assert why.waits_for == "its class, which cannot be loaded: it has a syntax error"
    assert why.problem == "it has a syntax error"
    home.state = FleetState(home.store, home.clock, home.ids)
    assert home.why().waits_for.startswith("a project or a command that names its class")


async def test_a_requested_agent_waits_behind_others_for_a_host(home: Home) -> None:
    home.admit()
    home.state.requests.add(BOB, home.code)
    home.state.requests.add(ALICE, home.code)
    home.state.hosts.add(Host("host_2", home.code, "", HostStatus.STARTING))
    assert home.why().waits_for == "a host of its class (1 starting), behind 1 other agent"
    home.host()
    assert home.why().waits_for.startswith("its activation in host_1")
    assert (home.why().host_id, home.why().pid, home.why().isolation) == ("host_1", None, "process")
    assert home.why(pid=4711).pid == 4711


async def test_the_isolation_is_that_of_the_host_and_a_quarantine_is_explained(home: Home) -> None:
    home.state.hosts.add(Host("host_1", home.code, "", HostStatus.WARM, isolation="shared"))
    home.state.hosts.place(Placement("host_1", ALICE, epoch=1))
    assert (home.why().isolation, home.why().quarantine) == ("shared", None)
    home.state.hosts.leave(home.state.hosts["host_1"], ALICE)
    sources = (home.code.file,)
    loaded = Loaded(home.code, sources, home.state.codes.stamps.of(sources), "shared")
    home.state.quarantine.add(ALICE, loaded, "it blocked the event loop")
    assert (home.why().isolation, home.why().quarantine) == (None, "it blocked the event loop")
    Path(home.code.file).write_text("edited = True")
    assert home.why().quarantine is None, "the code that blocked was edited"


async def test_what_other_hosts_have_of_what_its_host_needs_is_named(home: Home) -> None:
    home.admit()
    home.state.nodes = (Node(LOCAL_NODE, {"CPU": 4, "GPU": 1}),)
    needs = needs_of(type("Painter", (BaseAgent,), {"resources": {"num_gpus": 1, "CPU": 2}}))
    home.state.codes.loads(Loaded(home.code, (), home.state.codes.stamps.of(()), needs=needs))
    home.state.requests.add(ALICE, home.code)
    assert home.why().waits_for == "a host of its class (0 starting)"
    home.state.hosts.add(Host("host_2", home.code, "", HostStatus.ASSIGNED, needs=needs))
    assert home.why().waits_for == "a host of its class (0 starting); other hosts have what it needs: local lacks GPU 1"


async def test_a_quota_that_keeps_an_agent_asleep_is_named(home: Home) -> None:
    home.admit()
    home.state.quotas = lambda: {"default": Quota(awake_agents=0)}
    home.state.requests.add(ALICE, home.code)
    home.state.observe()
    why = "an agent of its tenant to sleep: the tenant default may have 0 agents awake, and has them"
    assert home.why().waits_for == why


async def test_messages_in_the_outbox_are_told_of_although_their_receiver_does_not_exist(home: Home) -> None:
    home.tell(BOB, BOB, ALICE)
    assert home.why().waits_for == "the delivery of 1 message of other agents"
    facts = agent_facts(home.state, BOB, "there are too many")
    why = why_object(home.store, None, BOB, facts, 0)  # type: ignore[arg-type]
    assert why.waits_for == "the delivery of 2 messages of other agents: there are too many"
    assert why.outbox == Outbox(messages=2, oldest_at=7, held_by="there are too many")
    assert (why.agent, why.status, why.turn) == ("hello/bob", "asleep", 0)
    with pytest.raises(UnknownAgent):
        why_object(home.store, None, Address("hello", "bob", "acme"), facts, 0)  # type: ignore[arg-type]
    stopped = why_object(home.store, None, BOB, None, 0)  # type: ignore[arg-type]
    assert stopped.waits_for == "a service: none runs"


async def test_an_awake_agent_waits_for_the_end_of_its_turn(home: Home) -> None:
    home.host(epoch=1)
    home.store.acquire_lease(home.session.session_id, "host_1", home.clock.now_ms(), 10_000)
    assert home.why().waits_for == "a message"
    home.admit()
    assert home.why().waits_for == "its host, which takes the next message"
    why = home.why(message_id="msg_1", left_s=12.0)
    assert why.waits_for == "the end of its turn for msg_1 (limit in 12 s)"
    assert (why.status, why.epoch, why.holder, why.message_id) == ("awake", 1, "host_1", "msg_1")
    assert home.why(message_id="msg_1", left_s=-3.0).waits_for.endswith("(limit passed 3 s ago)")
    silence = fate_of_silent(10.0, 5.0, 60.0)
    assert home.why(silence=silence).waits_for == (
        "its host, which does not answer: it is replaced after 15 s of silence, or 70 s while it computes"
    )


async def test_a_held_agent_and_a_failed_wake_say_so(home: Home) -> None:
    home.admit()
    home.state.holds.renew(ALICE, "hold_1")
    assert home.why().held
    assert home.why().waits_for.startswith("the end of an operation that needs it asleep")
    home.state.holds.release(ALICE, "hold_1")
    home.state.retries.failed(ALICE, HostDied("its process died"))
    home.state.hosts.note_death(ALICE, "killed by SIGKILL (signal 9)")
    home.clock.advance(5)
    why = home.why()
    assert why.waits_for == "the next attempt to wake it, in 10 s: its process died"
    assert (why.failed_wakes, why.wake_error) == (1, "its process died")
    assert why.retry_at == home.clock.now_ms() + 10_000
    assert why.last_death == "killed by SIGKILL (signal 9)"
    home.state.retries.forget(ALICE)
    assert "its last wake failed for good" in home.why().waits_for


async def test_a_lease_of_a_command_is_waited_for(home: Home) -> None:
    home.admit()
    home.store.acquire_lease(home.session.session_id, "command_1", home.clock.now_ms(), 10_000)
    assert home.why().waits_for == "the end of command_1, which has its lease"
    assert "or of that lease" in home.why(service=False).waits_for


class Failing(BaseAgent):
    """Fails as its message says."""

    class State(DeltaState):
        pass

    max_attempts = 1

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        raise ValueError(message["text"])


async def test_the_last_error_is_of_the_last_failed_attempt() -> None:
    store = MemoryJournalStore()
    async with AgentHarness(Failing, "a", store=store) as agent:
        await agent.send({"text": "first"})
        await agent.send({"text": "second"})
        session = store.session("failing/a")
        last = store.messages(session.session_id, MessageStatus.PARKED)[-1]
        why = why_object(store, agent.blobs, Address("failing", "a"), None, agent.clock.now_ms())
    assert why.last_error is not None
    assert (why.last_error.type, why.last_error.message) == ("ValueError", "second")
    assert why.last_error.attempt == 1
    assert why.last_error.message_id == last.message_id
    assert why.parked == 2


async def test_a_node_has_its_hosts_by_their_phases(home: Home) -> None:
    home.host()
    home.state.hosts.add(Host("host_2", home.code, "", HostStatus.WARM))
    for number in range(2):
        home.state.hosts.add(Host(f"shared_{number}", home.code, "", HostStatus.WARM, isolation="shared"))
    for key in ("a", "b", "c"):
        home.state.hosts.assign("shared_0", Address("shared", key))
    node = node_facts(unreachable_node("local", "it hangs"), list(home.state.hosts), drained=True)
    assert (node["node"], node["problem"], node["drained"]) == ("local", "it hangs", True)
    assert (node["starting"], node["warm"], node["assigned"], node["agents"]) == (0, 2, 2, 4)
