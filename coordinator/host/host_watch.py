"""The thread of a host that user code cannot block: it renews leases, and enforces the deadlines of turns.

User code may block the agents' event loop for any time. The leases must be renewed meanwhile; and a turn that ignores
its deadline can only be stopped by ending the process.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import ChronicleError, StaleEpoch
from coordinator.host.process_exit import leave_last_words

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore
    from coordinator.host.host_config import HostConfig
    from coordinator.host.hosted_agent import HostedAgent

__all__ = ["HostWatch"]

_DEADLINE_GRACE_S: Final = 5.0
"""Grace period of a turn after its deadline or its cancellation; then its process is ended."""
_EXIT_DEADLINE: Final = 75
"""Exit code of a host that ended itself because a turn ignored its deadline (EX_TEMPFAIL of sysexits.h)."""

_log = structlog.stdlib.get_logger("coordinator.host")


class HostWatch:
    """Watches the agents of a host; the thread runs while there are any.

    Args:
        config: the host's.
        store: the journal, which has the leases.
        clock: of the leases and deadlines.
    """

    def __init__(self, config: HostConfig, store: JournalStore, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._agents: dict[HostedAgent, None] = {}
        self._lost: set[HostedAgent] = set()
        """Agents whose leases are lost; they are ending."""
        self._guard = threading.Lock()
        """Held while the agents change."""
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, agent: HostedAgent) -> None:
        """Begin to watch an agent whose lease was just taken."""
        with self._guard:
            self._agents[agent] = None
            if self._thread is None:
                self._changed.clear()
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()

    def remove(self, agent: HostedAgent) -> None:
        """Stop watching an agent."""
        with self._guard:
            self._agents.pop(agent, None)
            self._lost.discard(agent)
            self._changed.set()

    def _run(self) -> None:
        interval_s = self._config.lease_ttl_s / 3
        renew_at_s = self._clock.monotonic_s() + interval_s
        while True:
            self._changed.wait(min(interval_s, 1.0))
            self._changed.clear()
            with self._guard:
                agents = [agent for agent in self._agents if agent not in self._lost]
                if not self._agents:
                    self._thread = None
                    return
            for agent in agents:
                self._end_if_overdue(agent)
            if self._clock.monotonic_s() >= renew_at_s:
                renew_at_s = self._clock.monotonic_s() + interval_s
                for agent in agents:
                    self._renew(agent)

    def _renew(self, agent: HostedAgent) -> None:
        lease, ttl_ms = agent.activation.lease, round(self._config.lease_ttl_s * 1000)
        try:
            self._store.renew_lease(lease.session_id, lease.epoch, self._clock.now_ms(), ttl_ms)
        except StaleEpoch as error:
            _log.warning("lease_lost", host_id=self._config.host_id, agent_id=str(agent.address), error=str(error))
            with self._guard:
                if agent in self._agents:
                    self._lost.add(agent)
            agent.evict()
        except ChronicleError as error:
            _log.warning("lease_not_renewed", host_id=self._config.host_id, error=str(error))

    def _end_if_overdue(self, agent: HostedAgent) -> None:
        """End the process if a turn runs past its deadline: code that blocks cannot be stopped otherwise."""
        deadline_s = agent.activation.deadline_s
        if deadline_s is not None and self._clock.monotonic_s() > deadline_s + _DEADLINE_GRACE_S:
            late = f"{_DEADLINE_GRACE_S:g} s after {agent.activation.deadline_reason}"
            why = f"podium ended it, because the turn went on {late} and blocked the event loop"
            _log.error("turn_would_not_stop", agent_id=str(agent.address), host_id=self._config.host_id)
            sys.stdout.flush()
            faulthandler.dump_traceback()  # to the agent's log: shows where the code blocks
            leave_last_words(Path(self._config.last_words), why)
            os._exit(_EXIT_DEADLINE)
