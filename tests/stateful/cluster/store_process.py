"""The store process of a simulated node: the real permits, between the hosts of the node and the journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from chronicle.errors import ChronicleError, Unavailable
from coordinator.store.permits import HostPermits
from coordinator.store.renewals import Renewals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.ids import SessionId
    from chronicle.journal.ports.reserve import Reserve
    from chronicle.journal.records import Commit, Event, Head, StoredStep
    from tests.stateful.cluster.network import Place
    from tests.stateful.cluster.world import ClusterWorld

__all__ = ["HostStore", "StoreProcess"]

_LATE_S: Final = 3.0
"""Longest delay of a call that arrives twice, or after its node was cut off."""
_DOUBLED: Final = 0.03
"""Share of the writes that arrive twice."""
_ARRIVES: Final = 0.5
"""Share of the writes of a node that is cut off that arrive when it is connected again."""


class StoreProcess:
    """The store process of a node, over its deaths.

    Args:
        world: the world.
        node: whether it is cut off.
    """

    def __init__(self, world: ClusterWorld, node: Place) -> None:
        self._world = world
        self._node = node
        self._permits: dict[str, HostPermits] = {}
        self._renewals = Renewals(world.journal, world.loop.time)
        self._away_until_s = 0.0

    @property
    def reserve(self) -> Reserve:
        """The space that the journal reserves."""
        return self._world.journal.reserve

    def die(self, away_s: float) -> None:
        """Die, and be started again after some seconds: it has forgotten the permits."""
        self._permits.clear()
        self._renewals = Renewals(self._world.journal, self._world.loop.time)
        self._away_until_s = self._world.loop.time() + away_s

    def read(self, host_id: str, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the journal for a host."""
        self._check_there()
        return self._call(host_id, method, arguments, named)

    def write(self, host_id: str, method: str, *arguments: Any) -> Any:
        """Write for a host: perhaps twice, or late."""
        draw = self._world.generator.random

        def later() -> None:
            try:
                self._call(host_id, method, arguments, {})
            except ChronicleError as error:
                self._world.note(host_id[-6:], "late", method, type(error).__name__)

        if self._node.is_cut and draw() < _ARRIVES:
            self._later_when_connected(later)
        self._check_there()
        answer = self._call(host_id, method, arguments, {})
        if draw() < _DOUBLED:
            self._world.loop.call_later(_LATE_S * draw() ** 2, later)
        return answer

    def _later_when_connected(self, call: Any) -> None:
        async def wait() -> None:
            while self._node.is_cut:
                await asyncio.sleep(0.1)
            await asyncio.sleep(_LATE_S * self._world.generator.random() ** 2)
            call()

        _ = self._world.link.spawn(wait(), "late call")

    def _check_there(self) -> None:
        self._world.check_database()
        if self._node.is_cut or self._world.loop.time() < self._away_until_s:
            raise Unavailable("simulated: the store process is not reached")

    def _call(self, host_id: str, method: str, arguments: Any, named: Any) -> Any:
        permits = self._permits.get(host_id)
        if permits is None:
            permits = self._permits[host_id] = HostPermits(self._world.journal, host_id, self._renewals)
        if method == "commit":
            permits.check_write(arguments[0])
            with self._world.oracle.called_by(host_id):
                return self._world.journal.commit(*arguments)
        return permits.call(method, arguments, named)


class HostStore:
    """The journal, as a host has it."""

    def __init__(self, process: StoreProcess, host_id: str) -> None:
        self._process = process
        self._host_id = host_id

    def commit(self, commit: Commit) -> Head:
        """Commit."""
        head: Head = self._process.write(self._host_id, "commit", commit)
        return head

    def put_step(self, session_id: SessionId, step: StoredStep, epoch: int | None) -> None:
        """Messages of these simulations have no steps."""
        raise NotImplementedError

    def renew_leases(self, leases: Any, now_ms: int, ttl_ms: int) -> list[SessionId]:
        """Renew leases."""
        lost: list[SessionId] = self._process.write(self._host_id, "renew_leases", leases, now_ms, ttl_ms)
        return lost

    def release_leases(self, leases: Any) -> None:
        """Release leases."""
        self._process.write(self._host_id, "release_leases", leases)

    @property
    def reserve(self) -> Reserve:
        """The space that the store reserves."""
        return self._process.reserve

    def events(self, *arguments: Any, **named: Any) -> Iterator[Event]:
        """Iterate over events."""
        return iter(self._process.read(self._host_id, "events", *arguments, **named))

    def __getattr__(self, name: str) -> Any:
        """Return a method that reads."""

        def read(*arguments: Any, **named: Any) -> Any:
            return self._process.read(self._host_id, name, *arguments, **named)

        return read
