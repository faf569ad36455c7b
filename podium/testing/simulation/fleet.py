"""The fleet of a simulation: agents and hosts, supervisors that wake them, the courier, and disturbances."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from chronicle.errors import BranchInUse, Conflict, LeaseHeld, StaleEpoch, Unavailable
from chronicle.journal.records import MessageStatus
from podium.address import Address
from podium.agent_record import read_agent
from podium.blocking import at_once
from podium.errors import AgentAwake, AgentExists, AgentInUse, UnknownMoment
from podium.events import USER_MESSAGE
from podium.history.branching import fork_agent, rewind_agent, sleeping_lease
from podium.history.fold import fold_agent, mark_commit
from podium.messages.courier import deliver_outbox
from podium.reminders.firing import ReminderTask
from podium.testing.simulation.host import SimulatedAgent, SimulatedHost
from podium.testing.simulation.puppet import Puppet
from podium.testing.simulation.world import CLIENTS_S, LEASE_MS, World
from podium.turn.journal.lost_attempt import record_lost_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.journal.records import Session
    from podium.events import Part

__all__ = ["SimulatedFleet"]


class SimulatedFleet:
    """All agents of a run, and all hosts, dead ones included."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.agents: list[SimulatedAgent] = []
        self.hosts: list[SimulatedHost] = []
        world.wake = self._wake_asked

    def add_agent(self, address: Address, session: Session) -> None:
        """Supervise an agent from now on."""
        agent = SimulatedAgent(address, session)
        self.agents.append(agent)
        _ = self._world.link.spawn(self._supervise(agent), f"supervise {address}")

    def new_session(self, name: str) -> Session:
        """Create an agent's session."""
        now_ms = self._world.clock.now_ms()
        return self._world.oracle.ensure_session(
            name, self._world.ids.session(now_ms), self._world.ids.branch(now_ms), now_ms
        )

    async def _supervise(self, agent: SimulatedAgent) -> None:
        """Keep an agent awake while messages are pending, as a coordinator does."""
        while not self._world.over:
            agent.changed.clear()
            if (agent.host is None or agent.host.ended) and self._world.store.pending(
                agent.session.session_id, limit=1
            ):
                self._wake(agent, usurp=False)
            try:
                async with asyncio.timeout(0.5):
                    await agent.changed.wait()
            except TimeoutError:
                continue

    async def deliver(self) -> None:
        """Deliver messages between agents, even after the death of their sender."""
        while not self._world.over:
            try:
                async with asyncio.timeout(1.0):  # a sender may die before it signals its outbox
                    await self._world.sent.wait()
            except TimeoutError:
                if not self._world.store.outbox():
                    continue
            self._world.sent.clear()
            try:
                receivers = deliver_outbox(self._world.link.store, self._world.ids, self._world.clock.now_ms())
            except Unavailable:
                await asyncio.sleep(0.2)
                self._world.sent.set()
                continue
            if self._world.store.outbox():
                self._world.sent.set()
            for address in receivers:
                if all(agent.address != address for agent in self.agents):
                    self.add_agent(address, self._world.store.session(address.name, address.tenant))
            for agent in self.agents:
                if agent.address in receivers:
                    self.poke(agent)

    async def remind(self) -> None:
        """Fire reminders, as a coordinator does."""
        world = self._world
        store, sent = world.link.store, world.sent.set
        task = ReminderTask(store, world.ids, world.clock, self._reminded, world.generator, at_once, sent)
        await task.run()

    async def _reminded(self, address: Address) -> None:
        for agent in self.agents:
            if agent.address == address:
                self.poke(agent)

    async def _wake_asked(self, address: Address) -> None:
        """Have an agent that was asked look for the question; it may be there for the first time."""
        if all(agent.address != address for agent in self.agents):
            self.add_agent(address, self._world.store.session(address.name, address.tenant))
        await self._reminded(address)

    def _wake(self, agent: SimulatedAgent, *, usurp: bool) -> None:
        """Take an agent's lease and give it to a new host.

        Args:
            usurp: take the lease from a live host that is wrongly presumed dead.
        """
        host_id = self._world.ids.other("host_", self._world.clock.now_ms())
        if agent.host is not None:
            self._settle_death(agent, agent.host)
        try:
            before = self._world.link.store.lease(agent.session.session_id)
            dead = before is not None and all(host.ended for host in self.hosts if host.host_id == before.holder)
            lease = self._world.link.store.acquire_lease(
                agent.session.session_id, host_id, self._world.clock.now_ms(), LEASE_MS, takeover=dead or usurp
            )
        except (LeaseHeld, Unavailable):
            return
        host = SimulatedHost(self._world, agent, host_id, lease, unclean=before is not None)
        agent.host = host
        self.hosts.append(host)
        host.start()

    def _settle_death(self, agent: SimulatedAgent, host: SimulatedHost) -> None:
        """Settle the lease of a host that has died, as a coordinator does.

        A death in company counts no attempt, one during the activation counts one that is recorded at once. What is
        left counts one at the next activation.
        """
        world = self._world
        store, lease = world.link.store, host.lease
        if host.link.alive or (host.link.died_alone and host.activation is not None):
            return
        try:
            if host.link.died_alone:
                now_ms = world.clock.now_ms()
                attempts = Puppet.max_attempts
                record_lost_attempt(store, agent.address, lease, attempts, None, world.ids, now_ms, has_on_failed=False)
        except (Unavailable, StaleEpoch):  # it may be recorded all the same
            pass
        with suppress(Unavailable, StaleEpoch):
            store.release_lease(lease.session_id, lease.epoch)

    def poke(self, agent: SimulatedAgent) -> None:
        """Notify an agent of a pending message; some notifications are lost."""
        agent.changed.set()
        if agent.host is not None and agent.host.loop is not None and self._world.generator.random() < 0.9:
            agent.host.loop.poke()

    async def disturb(self) -> None:
        """Inject one disturbance at a random time."""
        draw = self._world.generator
        await asyncio.sleep(draw.random() * CLIENTS_S * 1.5)
        agent = draw.choice(self.agents)
        host = agent.host
        match draw.choice(
            (
                "kill",
                "kill",
                "stall",
                "usurp",
                "usurp",
                "power",
                "stop",
                "again",
                "fork",
                "rewind",
                "rewind",
                "fold",
                "erase",
            )
        ):
            case "kill" if host is not None:
                host.link.die()
            case "stall" if host is not None:
                host.link.stall(1 + 6 * draw.random())
            case "usurp":
                self._wake(agent, usurp=True)
            case "power":
                self._lose_power(draw.randrange(self._world.nodes.count))
            case "stop" if host is not None and host.loop is not None:
                host.loop.stop()
            case "again":
                self._put_back(agent)
            case "fork":
                await self._fork(agent)
            case "rewind":
                await self._rewind(agent)
            case "fold":
                await self._fold(agent)
            case "erase":
                self._erase(agent)

    def _lose_power(self, node: int) -> None:
        self._world.note("fleet", "node", node, "loses power")
        for host in self.hosts:
            if host.node == node:
                host.link.die()
        self._world.nodes.lose_power(node, self._world.generator)

    def _put_back(self, agent: SimulatedAgent) -> None:
        session_id = agent.session.session_id
        parked = self._world.store.messages(session_id, MessageStatus.PARKED)
        if parked:
            self._world.oracle.retry_message(session_id, parked[0].message_id)
            self.poke(agent)

    async def _fork(self, agent: SimulatedAgent) -> None:
        """Fork an agent at a random turn; retry after each fault, as a user would."""
        line = self._world.oracle.line(agent.session.session_id)
        if not line.created:
            return
        quiet = "quiet-" if agent.address.key.startswith("quiet") else ""
        address = Address("puppet", f"{quiet}fork{self._world.generator.getrandbits(32):08x}")
        turn = self._world.generator.choice(list(line.past))
        for _ in range(20):
            try:
                fork_agent(
                    self._world.link.store, agent.address, turn, address, self._world.ids, self._world.clock.now_ms()
                )
            except Unavailable:
                await asyncio.sleep(0.3)
                continue
            except UnknownMoment:  # folded meanwhile
                return
            except AgentExists:  # the fork exists, but the answer was lost
                pass
            self._world.note("fleet", "forks", str(agent.address), "at turn", turn)
            self.add_agent(address, self._world.store.session(address.name, address.tenant))
            if self._world.generator.random() < 0.5:  # history that forks read must not be dropped
                await self._fold(agent)
            return

    async def _rewind(self, agent: SimulatedAgent) -> None:
        """Passivate an agent, and rewind it, unless it was woken meanwhile."""
        if agent.host is not None:
            await agent.host.end()
        line = self._world.oracle.line(agent.session.session_id)
        if not line.created:
            return
        turn, blobs = self._world.generator.choice(list(line.past)), self._world.nodes.blobs
        kinds: Sequence[Sequence[Part] | None] = (None, ("state",), ("files",))
        only = kinds[1] if blobs is None else self._world.generator.choice(kinds)
        now_ms = self._world.clock.now_ms()
        try:
            rewind_agent(self._world.link.store, self._world.blobs, agent.address, turn, only, self._world.ids, now_ms)
        except (AgentAwake, UnknownMoment, Unavailable):
            return
        self._world.note("fleet", str(agent.address), "went back to turn", turn, only or "")

    async def _fold(self, agent: SimulatedAgent) -> None:
        """Passivate an agent, and fold its history; retry while it is awake, unless it has forks."""
        if not self._world.oracle.line(agent.session.session_id).created:
            return
        world = self._world
        for _ in range(20):
            if agent.host is not None:
                await agent.host.end()
            try:
                if world.nodes.blobs is not None:
                    fold_agent(world.link.store, world.blobs, agent.address, None, world.ids, world.clock.now_ms())
                else:
                    self._fold_to_mark(agent)
            except (AgentAwake, Unavailable):
                await asyncio.sleep(0.3)
                continue
            except (AgentInUse, BranchInUse, Conflict, StaleEpoch):
                return
            world.note("fleet", str(agent.address), "was folded")
            return

    def _fold_to_mark(self, agent: SimulatedAgent) -> None:
        """Fold without an operation log, in which `fold_agent` looks up the trees of rolled-back attempts."""
        world, store = self._world, self._world.link.store
        now_ms = world.clock.now_ms()
        with sleeping_lease(store, agent.session, now_ms) as lease:
            record = read_agent(store, world.blobs, agent.address)
            mark = mark_commit(record, record.head, (), lease.epoch, world.ids.event(now_ms), now_ms, {})
            head = store.commit(mark)
            store.fold(head.branch_id, head.seq, now_ms)

    def _erase(self, agent: SimulatedAgent) -> None:
        """Erase a message to an agent; its state and its replies must stay."""
        events = list(self._world.store.events(agent.session.main_branch_id, types=(USER_MESSAGE,)))
        if events:
            with suppress(Unavailable):
                self._world.link.store.erase([self._world.generator.choice(events).event_id])
