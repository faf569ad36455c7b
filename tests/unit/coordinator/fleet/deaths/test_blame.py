"""Who pays for the death of a host: each cell of the table of docs/internals/deaths.md.

A cause decides two things: whether the host names an agent, and whether it ended by itself at all. So each test has a
death as the coordinator sees it, the moment of an agent in it, and its company; then the next activation comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from chronicle.canonical import decode
from chronicle.clock import ManualClock
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus, NewMessage
from coordinator.fleet.cancellation import Withdrawals
from coordinator.fleet.deaths.deaths import Deaths
from coordinator.fleet.host import Host, HostStatus
from coordinator.fleet.leases import HostLeases
from coordinator.fleet.model import AgentsLost, Code, Loaded, Placement
from coordinator.fleet.state import FleetState
from podium.address import Address
from podium.messages.headers import Headers

if TYPE_CHECKING:
    from pathlib import Path

    from podium.agent.base import Isolation

AGENT, OTHER = Address("hello", "agent"), Address("hello", "other", "acme")
pytestmark = pytest.mark.usefixtures("caplog")  # deaths are logged as warnings

MAX_ATTEMPTS = 2
HOW = "killed by SIGSEGV (signal 11)"

Moment = Literal["waking", "in a turn", "idle"]


class Fleet:
    """A host with an agent, in company or alone, that dies; and the activation after that."""

    def __init__(self, tmp_path: Path, moment: Moment, *, is_shared: bool) -> None:
        file = tmp_path / "hello.py"
        file.write_text("")
        self.store, self.clock, self.ids = MemoryJournalStore(), ManualClock(), IdSource()
        self.state = FleetState(self.store, self.clock, self.ids)
        self.deaths = Deaths(self.state, Withdrawals(self.store, self.clock, self.ids))
        self.moment, self.is_shared = moment, is_shared
        code = Code(str(file), "Hello", "hello")
        stamp = self.state.codes.stamps.of([str(file)])
        self.state.codes.register(code)
        self.loaded = Loaded(code, (str(file),), stamp, "shared", not is_shared, MAX_ATTEMPTS)
        self.state.codes.loads(self.loaded)
        self.leases = HostLeases(self.store, self.clock, 10.0, alive=lambda _: False)
        for address in (AGENT, OTHER):
            self.store.ensure_session(address.name, self.ids.session(0), self.ids.branch(0), 0, address.tenant)
        if moment != "idle":
            self.admit(AGENT)
        self.admit(OTHER)
        self.code = code

    def admit(self, address: Address) -> None:
        session = self.store.session(address.name, address.tenant)
        self.store.admit(session.session_id, NewMessage(self.ids.message(0), b"{}", 0))

    async def die(self, number: int, culprit: Address | None) -> None:
        """Have the host of the agent die, and its wake settle that if the activation was under way."""
        host_id = f"host_{number}"
        isolation: Isolation = "shared" if self.is_shared else "process"
        host = self.state.hosts.add(Host(host_id, self.code, "", HostStatus.WARM, self.loaded, isolation))
        leases = {}
        for address in (AGENT, OTHER) if self.is_shared else (AGENT,):
            leases[address], _ = self.leases.take(address, host_id)
            awake = address == OTHER or self.moment != "waking"
            self.state.hosts.place(Placement(host_id, address, epoch=leases[address].epoch if awake else None))
        lost = list(host.placements.values())
        shared, alone = (self.loaded, None) if self.is_shared else (None, self.loaded)
        await self.deaths.note_end(AgentsLost(lost, HOW, shared, culprit, alone=alone))
        self.state.hosts.remove(host)
        if self.moment == "waking":
            await self.deaths.settle_waking(AGENT, leases[AGENT], self.loaded, unclean=False)

    def attempts(self, address: Address) -> int:
        """Return the attempts of an agent's message when its next activation has begun; a message may come before."""
        session = self.store.session(address.name, address.tenant)
        if not self.store.messages(session.session_id, MessageStatus.PARKED) and not self.store.pending(
            session.session_id
        ):
            self.admit(address)
        _, unclean = self.leases.take(address, "host_next")
        [message] = [
            message
            for status in (MessageStatus.PENDING, MessageStatus.PARKED)
            for message in self.store.messages(session.session_id, status)
        ]
        return message.attempts + unclean

    @property
    def alone(self) -> set[Address]:
        for address in (AGENT, OTHER):
            self.state.requests.add(address, self.code)
        return set(self.state.observe().alone)


@pytest.mark.parametrize(("moment", "pays"), [("waking", 1), ("in a turn", 1), ("idle", 0)])
async def test_an_agent_pays_for_the_death_of_its_own_process(tmp_path: Path, moment: Moment, pays: int) -> None:
    fleet = Fleet(tmp_path, moment, is_shared=False)
    await fleet.die(1, AGENT)
    assert fleet.attempts(AGENT) == pays
    assert fleet.alone == {AGENT}, "it stays in a process of its own"
    assert fleet.state.why_alone(AGENT, fleet.code) == f"it ended a process of its own: {HOW}"


async def test_a_message_that_ends_every_activation_is_parked(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "waking", is_shared=False)
    for number in range(MAX_ATTEMPTS):
        await fleet.die(number, AGENT)
    [message] = fleet.store.messages(fleet.store.session(AGENT.name).session_id, MessageStatus.PARKED)
    assert message.attempts == MAX_ATTEMPTS
    assert not fleet.store.outbox()


async def test_a_message_that_is_parked_so_is_told_to_on_failed(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "waking", is_shared=False)
    fleet.loaded = replace(fleet.loaded, has_on_failed=True)
    for number in range(MAX_ATTEMPTS):
        assert not fleet.store.outbox()
        await fleet.die(number, AGENT)
    [message] = fleet.store.messages(fleet.store.session(AGENT.name).session_id, MessageStatus.PARKED)
    [notice] = fleet.store.outbox()
    assert (notice.target, notice.namespace, notice.sender) == (AGENT.name, AGENT.tenant, AGENT.name)
    assert Headers.from_json(notice.headers).failed == message.message_id
    assert HOW in cast("Any", decode(notice.body))["error"]["message"]


async def test_the_death_of_a_warm_process_costs_nothing(tmp_path: Path) -> None:
    """It names no agent, because no activation had begun."""
    fleet = Fleet(tmp_path, "waking", is_shared=False)
    await fleet.die(1, None)
    assert fleet.attempts(AGENT) == 0
    assert fleet.alone == set()


@pytest.mark.parametrize(("moment", "pays"), [("waking", 1), ("in a turn", 1), ("idle", 0)])
async def test_the_agent_that_a_shared_host_names_pays_alone(tmp_path: Path, moment: Moment, pays: int) -> None:
    """Such as one that blocked its event loop, or called os._exit."""
    fleet = Fleet(tmp_path, moment, is_shared=True)
    await fleet.die(1, AGENT)
    assert (fleet.attempts(AGENT), fleet.attempts(OTHER)) == (pays, 0)
    assert fleet.alone == {AGENT}


@pytest.mark.parametrize("moment", ["waking", "in a turn", "idle"])
async def test_nobody_pays_for_a_shared_host_that_names_nobody(tmp_path: Path, moment: Moment) -> None:
    """Such as after a signal, the OOM killer, a blocked callback, or no answer: its agents come back apart."""
    fleet = Fleet(tmp_path, moment, is_shared=True)
    await fleet.die(1, None)
    assert (fleet.attempts(AGENT), fleet.attempts(OTHER)) == (0, 0)
    assert fleet.alone == {AGENT, OTHER}


@pytest.mark.parametrize(("moment", "pays"), [("in a turn", 1), ("idle", 0)])
async def test_a_message_pays_if_it_runs_when_the_service_dies(tmp_path: Path, moment: Moment, pays: int) -> None:
    fleet = Fleet(tmp_path, moment, is_shared=True)
    lease, _ = fleet.leases.take(AGENT, "host_1")
    await fleet.deaths.note_lost([Placement("host_1", AGENT, epoch=lease.epoch)])
    assert fleet.attempts(AGENT) == pays


async def test_an_agent_that_lost_its_lease_pays_nothing(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "in a turn", is_shared=True)
    lease, _ = fleet.leases.take(AGENT, "host_1")
    fleet.store.release_lease(lease.session_id, lease.epoch)  # a command that took it, and gave it back
    assert fleet.attempts(AGENT) == 0
