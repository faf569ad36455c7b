"""The thread of a host that user code cannot block: it renews leases, and enforces limits of time and memory.

User code may block the agents' event loop for any time. The leases must be renewed meanwhile; and code that ignores its
deadline, or blocks the other agents of a shared host, can only be stopped by ending the process.
"""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError
from coordinator.host.node.process_exit import leave_culprit, leave_last_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chronicle.clock import Clock
    from chronicle.ids import SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Lease
    from coordinator.host.host_config import HostConfig
    from coordinator.host.hosted_agent import HostedAgent
    from coordinator.host.loop_watch import LoopWatch
    from coordinator.host.memory_watch import MemoryWatch
    from podium.address import Address

__all__ = ["HostWatch"]

_DEADLINE_GRACE_S: Final = 5.0
"""Grace period of a turn after its deadline or its cancellation; then its process is ended."""
_TICK_S: Final = 0.25
"""Interval of checks in a shared host. In a host of one agent it is four times as long."""
_LATE_S: Final = 2.5
"""By how much a renewal may come later than it is due, by ticks and by the call, before its lease is not sure."""
_SURE: Final = 0.6
"""The part of a lease's time to live for which it is sure at most: a store process need not look for 0.3 of it."""
_NOTICE_S: Final = 1.0
"""A blockage of the event loop that lasts longer is logged."""
_MAX_RENEWED: Final = 1000
"""Leases renewed in one transaction, during which other writers of the journal wait."""
_EXIT_DEADLINE: Final = 75
"""Exit code of a host that ended itself because a turn ignored its deadline (EX_TEMPFAIL of sysexits.h)."""

_log = structlog.stdlib.get_logger("coordinator.host")


class HostWatch:
    """Watches the agents of a host; the thread runs while there are any.

    Args:
        config: the host's.
        store: the journal, which has the leases.
        clock: of the leases and deadlines.
        full: called with the host's id, repeatedly, while it is to get no more agents.
    """

    def __init__(self, config: HostConfig, store: JournalStore, clock: Clock, full: Callable[[str], None]) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._full = full
        self._leases: dict[Address, Lease] = {}
        """Of all agents, from the beginning of their activation."""
        self._agents: dict[Address, HostedAgent] = {}
        """The agents whose activation has completed."""
        self._renewed_s: dict[SessionId, float] = {}
        """When the leases were renewed last, by the clock's ``boottime_s``: leases of a suspended machine end."""
        self._lost: set[Address] = set()
        """Agents whose leases are lost; they are ending."""
        self._guard = threading.Lock()
        """Held while the agents change."""
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None
        self._noticed = False
        """Whether the present blockage was logged."""
        self.loop_watch: LoopWatch | None = None
        """The watch of the event loop of a shared host; set before the first agent is added."""
        self.memory_watch: MemoryWatch | None = None
        """The watch of the memory of a shared host; likewise."""
        self._is_full = False
        """Whether this host is to be replaced."""

    def hold(self, address: Address, lease: Lease) -> None:
        """Begin to renew the lease of an agent whose activation begins."""
        with self._guard:
            self._leases[address] = lease
            self._renewed_s[lease.session_id] = self._clock.boottime_s() - self._age_s(lease)
            if self._thread is None:
                self._changed.clear()
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()

    def add(self, agent: HostedAgent) -> None:
        """Begin to watch an agent whose activation has completed."""
        with self._guard:
            self._agents[agent.address] = agent

    def remove(self, address: Address) -> None:
        """Stop watching an agent, and do not renew its lease any more."""
        with self._guard:
            if (lease := self._leases.pop(address, None)) is not None:
                self._renewed_s.pop(lease.session_id, None)
            self._agents.pop(address, None)
            self._lost.discard(address)
            if not self._leases:
                self._changed.set()

    def is_sure(self, lease: Lease) -> bool:
        """Return whether a lease was renewed when it was due: who is taken for dead is cut off for longer."""
        ttl_s, renewed_s = self._config.lease_ttl_s, self._renewed_s.get(lease.session_id, -math.inf)
        return self._clock.boottime_s() <= renewed_s + min(ttl_s / 3 + _LATE_S, ttl_s * _SURE)

    def _age_s(self, lease: Lease) -> float:
        """Return how long ago the coordinator acquired a lease, as far as the clocks of the two agree."""
        return max(0.0, self._config.lease_ttl_s - (lease.expires_ms - self._clock.now_ms()) / 1000)

    def renew(self, lease: Lease) -> bool:
        """Renew one lease now; return whether it is held. Blocks; raises `ChronicleError`."""
        begun_s = self._clock.boottime_s()
        ttl_ms = round(self._config.lease_ttl_s * 1000)
        if self._store.renew_leases([(lease.session_id, lease.epoch)], self._clock.now_ms(), ttl_ms):
            return False
        with self._guard:
            if lease.session_id in self._renewed_s:
                self._renewed_s[lease.session_id] = begun_s
        return True

    def spare(self, culprit: Address | None = None) -> None:
        """Have no attempt counted of messages of agents other than the culprit. The caller ends this process now."""
        with self._guard:
            spared = [lease for address, lease in self._leases.items() if address != culprit]
        try:
            self._store.release_leases([(lease.session_id, lease.epoch) for lease in spared])
        except ChronicleError as error:
            _log.warning("leases_not_released", host_id=self._config.host_id, error=str(error))

    def _run(self) -> None:
        interval_s = self._config.lease_ttl_s / 3
        tick_s = min(interval_s, _TICK_S if self.loop_watch is not None else 4 * _TICK_S)
        renew_at_s = self._clock.monotonic_s() + interval_s
        while True:
            self._changed.wait(tick_s)
            self._changed.clear()
            with self._guard:
                agents = list(self._agents.values())
                held = [(address, lease) for address, lease in self._leases.items() if address not in self._lost]
                if not self._leases:
                    self._thread = None
                    return
            self._enforce_limits(agents)
            is_news = self._look_at_memory(agents)
            if self._is_full and (is_news or self._clock.monotonic_s() >= renew_at_s):
                self._full(self._config.host_id)  # before its agents leave: they are not to come back
            for agent in agents if self._is_full else ():
                agent.retire()
            if self._clock.monotonic_s() >= renew_at_s:
                renew_at_s = self._clock.monotonic_s() + interval_s
                for start in range(0, len(held), _MAX_RENEWED):
                    self._renew(held[start : start + _MAX_RENEWED])

    # -- leases ---------------------------------------------------------------------------------------------------

    def _renew(self, held: Sequence[tuple[Address, Lease]]) -> None:
        ttl_ms = round(self._config.lease_ttl_s * 1000)
        holders = {lease.session_id: (address, lease) for address, lease in held}
        leases = [(lease.session_id, lease.epoch) for _, lease in held]
        begun_s = self._clock.boottime_s()
        try:
            stale = self._store.renew_leases(leases, self._clock.now_ms(), ttl_ms)
        except ChronicleError as error:
            _log.warning("leases_not_renewed", host_id=self._config.host_id, error=str(error))
            return
        with self._guard:
            held_still = {lease.session_id for lease in self._leases.values()} - set(stale)
            self._renewed_s.update(dict.fromkeys(holders.keys() & held_still, begun_s))
        for session_id in stale:
            address, lease = holders[session_id]
            with self._guard:
                agent = self._agents.get(address)
                if self._leases.get(address) is not lease or agent is None:  # it has ended, or is being activated
                    continue
                self._lost.add(address)
            _log.warning("lease_lost", host_id=self._config.host_id, agent_id=str(address))
            agent.evict()

    def _look_at_memory(self, agents: Sequence[HostedAgent]) -> bool:
        """Return whether the memory has just exceeded its limit, for the first time."""
        if self.memory_watch is None or not self.memory_watch.check(agents) or self._is_full:
            return False
        self._is_full = True
        _log.warning("host_full", host_id=self._config.host_id, why=self.memory_watch.describe())
        return True

    # -- limits ---------------------------------------------------------------------------------------------------

    def _enforce_limits(self, agents: Sequence[HostedAgent]) -> None:
        if self.loop_watch is None:
            for agent in agents:
                self._end_if_overdue(agent, since_s=0.0)
            return
        blockage = self.loop_watch.check()
        if blockage is None:
            self._noticed = False
            for agent in agents:
                self._end_if_overdue(agent, since_s=self.loop_watch.free_since_s)
            return
        if blockage.for_s >= _NOTICE_S and not self._noticed:
            self._noticed = True
            _log.warning(
                "event_loop_blocked",
                host_id=self._config.host_id,
                agent_id=str(blockage.agent) if blockage.agent is not None else None,
                limit_s=self._config.block_limit_s,
            )
        blocker = next((agent for agent in agents if agent.address == blockage.agent), None)
        if blocker is not None and blockage.for_s >= _DEADLINE_GRACE_S:
            self._end_if_overdue(blocker, since_s=0.0)
        if blockage.for_s >= self._config.block_limit_s:
            why = f"podium ended it, because {blockage.agent or 'a callback'} blocked the event loop of a shared host"
            self._end_process(blockage.agent, f"{why} for {blockage.for_s:.0f} s")

    def _end_if_overdue(self, agent: HostedAgent, *, since_s: float) -> None:
        """End the process if a turn runs past its deadline: code that blocks cannot be stopped otherwise.

        Args:
            since_s: from when on the agent could have ended its turn.
        """
        activation, late_s = agent.activation, self._clock.monotonic_s() - _DEADLINE_GRACE_S
        deadline_s, read_deadline_s = activation.deadline_s, activation.read_deadline_s
        if read_deadline_s is not None and late_s > max(read_deadline_s, since_s):
            why = "podium ended it, because a read-only handler went on after its limit and blocked the event loop"
            self._end_process(agent.address, why, counts=False)
        if deadline_s is not None and late_s > max(deadline_s, since_s):
            late = f"{_DEADLINE_GRACE_S:g} s after {activation.deadline_reason}"
            why = f"podium ended it, because the turn went on {late} and blocked the event loop"
            self._end_process(agent.address, why)

    def _end_process(self, culprit: Address | None, why: str, *, counts: bool = True) -> None:
        """End the process at once, and have no attempt counted of messages of agents other than the culprit.

        Args:
            counts: whether one is counted of the culprit's.

        If that is not known, as for a callback without a task, the coordinator finds out by and by
        (`coordinator.fleet.deaths.suspects`).
        """
        _log.error("turn_would_not_stop", agent_id=str(culprit) if culprit else None, host_id=self._config.host_id)
        sys.stdout.flush()
        faulthandler.dump_traceback()  # to the agent's log: shows where the code blocks
        leave_last_words(Path(self._config.last_words), why)
        if self.loop_watch is not None and culprit is not None:
            leave_culprit(Path(self._config.last_words), str(culprit))
        if culprit is not None and (self.loop_watch is not None or not counts):
            self.spare(culprit if counts else None)
        os._exit(_EXIT_DEADLINE)
