"""The world of a run of the cluster simulator: that of podium's simulator, and what is known of hosts and clients."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.errors import Unavailable
from coordinator.fleet.leases import HOST_PREFIX
from coordinator.homes import generation
from podium.testing.simulation.faults import Link
from podium.testing.simulation.nodes import ScratchNodes
from podium.testing.simulation.oracle import JournalOracle
from podium.testing.simulation.virtual_time import LoopClock
from podium.testing.simulation.world import World
from tests.stateful.cluster.network import ClusterLoop
from tests.stateful.cluster.restores import Restores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chronicle.ids import MessageId, SessionId
    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Commit, Head, Lease
    from podium.address import Address

__all__ = ["ClusterOracle", "ClusterWorld"]

_OUTSIDE: Final = "outside"
"""Who calls for no host."""


class ClusterOracle(JournalOracle):
    """Knows also who has each epoch, and how often hosts were lost."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._caller = _OUTSIDE
        self._holders: dict[tuple[SessionId, int], str] = {}
        self.losses: dict[SessionId, int] = {}
        """How often an agent's host was lost with it, by faults."""
        self.unsent: set[MessageId] = set()
        """Messages between agents of turns that a restore has lost."""

    @contextmanager
    def called_by(self, host_id: str) -> Iterator[None]:
        """Note which host calls."""
        self._caller = host_id
        try:
            yield
        finally:
            self._caller = _OUTSIDE

    def acquire_lease(self, session_id: SessionId, holder: str, *arguments: Any, **named: Any) -> Lease:
        """Acquire a lease."""
        lease = super().acquire_lease(session_id, holder, *arguments, **named)
        line, is_new = self.lines[session_id], (session_id, lease.epoch) not in self._holders
        self._must(is_new, line, f"epoch {lease.epoch} was given out before the restore, too")
        self._holders[session_id, lease.epoch] = holder
        before = self._holders.get((session_id, lease.epoch - 1))
        # A command that crashed has attempted nothing, and after one that cancels the next host records the attempt.
        if before == "podium-cli" or not holder.startswith(HOST_PREFIX):
            self.lines[session_id].owes_an_attempt = False
        return lease

    def has_lease(self, host_id: str, session_id: SessionId) -> bool:
        """Whether the latest lease of a session names a host."""
        return self._holders.get((session_id, self.lines[session_id].epoch)) == host_id

    def release_leases(self, leases: Sequence[tuple[SessionId, int]]) -> None:
        """Release leases."""
        self.store.release_leases(leases)
        for session_id, epoch in leases:
            line = self.lines.get(session_id)
            if line is not None and line.epoch == epoch:
                line.held = False

    def renew_leases(self, leases: Sequence[tuple[SessionId, int]], now_ms: int, ttl_ms: int) -> list[SessionId]:
        """Renew leases: what is not said to be lost is in force."""
        lost = list(self.store.renew_leases(leases, now_ms, ttl_ms))
        for session_id, epoch in leases:
            line = self.lines.get(session_id)
            if session_id not in lost and (line is None or not line.held or line.epoch != epoch):
                given = line.epoch if line is not None else None
                self.verdict.fail(f"epoch {epoch} of {session_id} was renewed, but {given} was given out")
        return lost

    def commit(self, commit: Commit) -> Head:
        """Commit."""
        if self._caller != _OUTSIDE and commit.epoch is not None:
            holder = self._holders.get((commit.session_id, commit.epoch))
            caller = self._caller
            head = super().commit(commit)
            line = self.lines[commit.session_id]
            self._must(holder == caller, line, f"{caller} has committed under epoch {commit.epoch} of {holder}")
            return head
        return super().commit(commit)

    def must_hold(self, session_id: SessionId) -> None:
        """Check that a lease is in force that was in force a moment ago."""
        line = self.lines[session_id]
        self._must(line.held, line, "a host has released the lease of another one")

    def check_inboxes(self) -> None:
        """Check the inboxes; a message of a turn that was lost may have got there."""
        for message_id in self.unsent:
            self.sent.pop(message_id, None)
        super().check_inboxes()

    def check_losses(self) -> None:
        """Check that no attempt was counted that no fault explains."""
        for session_id, line in self.lines.items():
            events = self.store.events(line.session.main_branch_id, types=("turn.failed",))
            counted = sum(b"HostLost" in (event.payload or b"") for event in events)
            allowed = self.losses.get(session_id, 0)
            self._must(counted <= allowed, line, f"{counted} attempts were lost with hosts, and {allowed} hosts were")


class _Database:
    """The journal, as processes outside of the nodes reach it."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        """Return a method of the journal.

        Raises:
            Unavailable: the database is away.
        """
        self._world.check_database()
        world, found = self._world, getattr(self._world.oracle, name)
        restores = world.restores.count

        def call(*arguments: Any, **named: Any) -> Any:
            if world.restores.count != restores:
                raise Unavailable("simulated: it was under way to the database as that was before it was restored")
            return found(*arguments, **named)

        return call

    def acquire_lease(self, *arguments: Any, **named: Any) -> Lease:
        """Acquire a lease for the coordinator, as its store process does."""
        self._world.check_database()
        least = generation.least_epoch(self._world.restores.check())
        return self._world.oracle.acquire_lease(*arguments, least_epoch=least, **named)


class ClusterWorld(World):
    """The world of a run."""

    def __init__(self, seed: int, store: JournalStore, *, calm: bool, verbose: bool) -> None:
        super().__init__(seed, store, ScratchNodes(), with_steps=False, with_asks=False, verbose=verbose)
        self.loop.close()
        self.loop = self.network = ClusterLoop(random.Random(seed + 2))
        self.clock = LoopClock(self.loop)
        self.oracle: ClusterOracle = ClusterOracle(store, self.nodes.tree, self._noting("journal"))
        self.oracle.verdict.stop = self._stop
        self.link = self.link_of(_Database(self), "outside")
        self._committers = [None] * self.nodes.count
        self.calm = calm
        """Whether nodes are drained, and nothing else happens."""
        self.database_away_until_s = 0.0
        self.drained_s: dict[str, float] = {}
        """Since when nodes are drained."""
        self.restores = Restores(self)

    @property
    def journal(self) -> JournalStore:
        """The journal, behind its oracle."""
        return cast("JournalStore", self.oracle)

    def check_database(self) -> None:
        """Raise if the database is away.

        Raises:
            Unavailable: it is.
        """
        if self.loop.time() < self.database_away_until_s:
            raise Unavailable("simulated: the database is away")

    def link_of(self, store: object, name: str) -> Link:
        """Return a link to a journal."""
        journal = cast("JournalStore", store)
        return Link(journal, self.generator, lambda: self.fault_rates, self._noting(name))

    def note_loss(self, address: Address | None) -> None:
        """Note that an agent's host has died of itself."""
        for session_id, line in self.oracle.lines.items():
            if address is not None and line.session.name == address.name:
                self.oracle.losses[session_id] = self.oracle.losses.get(session_id, 0) + 1
