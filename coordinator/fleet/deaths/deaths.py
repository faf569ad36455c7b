"""The consequences of the end or death of a host for its agents: `coordinator.fleet.deaths.blame` decides who pays.

They have two steps. When the process has ended, and before another host may take the agents, all leases but that of the
payer are released. For an agent whose activation had not completed, its wake does that, which has the lease. When the
host has left the table, the agents with pending messages are woken again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from coordinator.fleet.deaths.blame import judge
from podium.agent.base import BaseAgent
from podium.agent_record import find_session
from podium.errors import PodiumError
from podium.turn.journal.lost_attempt import record_lost_attempt
from podium.turn.telemetry import TURNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import SessionId
    from chronicle.journal.records import Lease
    from coordinator.fleet.cancellation import Withdrawals
    from coordinator.fleet.model import AgentsLost, Loaded, Placement
    from coordinator.fleet.state import FleetState
    from podium.address import Address

__all__ = ["Deaths"]

_OTHERS_FAULT: Final = "another agent of its shared host ended it, or blocked its event loop"

_log = structlog.stdlib.get_logger("coordinator.fleet.deaths.deaths")


class Deaths:
    """Settles the ends of hosts.

    Args:
        state: the coordinator's.
        withdrawals: messages that an activation has to drop first.
    """

    def __init__(self, state: FleetState, withdrawals: Withdrawals) -> None:
        self._state = state
        self._withdrawals = withdrawals
        self._paying: set[Address] = set()
        """Agents that pay for a death during their activation; their wakes see to that."""

    async def note_end(self, lost: AgentsLost) -> None:
        """Note what is known of the end of a host, before another host may take its agents."""
        for placement in lost.agents:  # the words about a culprit name it, and others may be of other tenants
            is_others = lost.culprit is not None and placement.address != lost.culprit
            self._state.hosts.note_death(placement.address, _OTHERS_FAULT if is_others else lost.how)
        await self._quarantine(lost)
        addresses = [placement.address for placement in lost.agents]
        try:
            pending = set(await self._state.pending_among(addresses))
        except ChronicleError as error:
            _log.warning("inbox_not_read", error=str(error))
            pending = set(addresses)
        verdict = judge(lost, pending)
        if verdict.suspects:
            _log.warning("agents_suspected", agent_ids=[str(address) for address in verdict.suspects], how=lost.how)
            self._state.suspects.split(verdict.suspects, lost.how)
        if verdict.payer is not None and verdict.payer.epoch is None:
            self._paying.add(verdict.payer.address)
        await self._release_all(verdict.spared)

    async def note_node_gone(self, lost: AgentsLost) -> None:
        """Note the agents of a host whose node is gone, before another host may take them.

        It is not known what took the node down: each message that was attempted counts the attempt.
        """
        for placement in lost.agents:
            self._state.hosts.note_death(placement.address, lost.how)
        await self.note_lost([placement for placement in lost.agents if placement.epoch is not None])

    async def agents_lost(self, lost: AgentsLost) -> None:
        """Handle that agents have no host any more: wake those that have pending messages again."""
        state, addresses = self._state, [placement.address for placement in lost.agents]
        if state.stopping:
            return
        if lost.died:
            state.host_died.set()
        for address in addresses if lost.shared is None else ():
            state.hosts.note_death(address, lost.how)
            if lost.how is None and not lost.died:
                state.suspects.clear(address)
        try:
            pending = await state.pending_among(addresses)
        except ChronicleError as error:
            _log.warning("inbox_not_read", error=str(error))
            for address in addresses:
                state.retries.failed(address, error)
            return
        for address in pending:
            code = state.codes.get(address.agent_type)
            if code is not None:
                state.requests.add(address, code)
                state.changed.set()
        for address in addresses:
            await self._withdrawals.prune_settled(address)

    async def settle_waking(self, address: Address, lease: Lease, loaded: Loaded | None, *, unclean: bool) -> bool:
        """Settle the lease of an activation that has failed; what it has attempted is known if its host has died.

        Args:
            unclean: an attempt before has not been counted: the next activation counts it.

        Returns:
            whether an attempt was counted.
        """
        pays, counted = address in self._paying, False
        self._paying.discard(address)
        if pays:
            try:
                await asyncio.to_thread(self._count_attempt, address, lease, loaded)
                counted = True
            except ChronicleError as error:  # it may be recorded all the same: it must not be counted twice
                _log.warning("attempt_not_recorded", agent_id=str(address), error=str(error))
        if pays or not unclean:
            await self.release(lease.session_id, lease.epoch)
        return counted

    async def note_lost(self, agents: Sequence[Placement]) -> None:
        """Note the agents of a host that ended with its service or node: one without messages has attempted nothing."""
        pending = await self._state.pending_among([placement.address for placement in agents])
        await self._release_all([placement for placement in agents if placement.address not in pending])

    async def release(self, session_id: SessionId, epoch: int) -> None:
        """Release a lease of a dead host under which no attempt is to be counted; if that fails, it expires."""
        try:
            await asyncio.to_thread(self._state.store.release_lease, session_id, epoch)
        except ChronicleError as error:
            _log.warning("lease_not_released", session_id=session_id, error=str(error))

    async def _quarantine(self, lost: AgentsLost) -> None:
        loaded, culprit = lost.shared or lost.alone, lost.culprit
        if loaded is None or loaded.isolation != "shared" or culprit is None:
            return
        how = lost.how or "it is not known how"
        why = how if lost.shared is not None else f"it ended a process of its own: {how}"
        _log.warning("agent_quarantined", agent_id=str(culprit), why=why)
        self._state.suspects.clear(culprit)
        await asyncio.to_thread(self._state.quarantine.add, culprit, loaded, why)

    def _count_attempt(self, address: Address, lease: Lease, loaded: Loaded | None) -> None:
        state = self._state
        max_attempts = loaded.max_attempts if loaded is not None else BaseAgent.max_attempts
        has_on_failed = loaded is None or loaded.has_on_failed  # one that has none does nothing in that turn
        now_ms, how = state.clock.now_ms(), state.hosts.death_of(address)
        outcome = record_lost_attempt(
            state.store, address, lease, max_attempts, how, state.ids, now_ms, has_on_failed=has_on_failed
        )
        if outcome is not None:
            _log.info("attempt_lost", agent_id=str(address), outcome=outcome, how=how)
            state.totals.recorder.add(TURNS, (address.agent_type, address.tenant, "message", outcome))

    async def _release_all(self, agents: Sequence[Placement]) -> None:
        """Release the leases of agents that do not pay, as far as their activations had completed."""
        store = self._state.store
        spared = [(each.address, each.epoch) for each in agents if each.epoch is not None]

        def release() -> None:
            sessions = [(find_session(store, address).session_id, epoch) for address, epoch in spared]
            store.release_leases(sessions)

        try:
            await asyncio.to_thread(release)
        except (ChronicleError, PodiumError) as error:
            _log.warning("leases_not_released", count=len(spared), error=str(error))
