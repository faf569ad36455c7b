"""Simulated agents, and simulated host processes that run them and may die."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from chronicle.errors import ChronicleError, Conflict, StaleEpoch, Unavailable
from podium.errors import Evicted
from podium.state import to_json
from podium.testing.simulation.faults import LinkedWorkspace
from podium.testing.simulation.puppet import STAGE, Puppet
from podium.testing.simulation.world import LEASE_MS, World
from podium.turn.activation import Activation, Step
from podium.turn.message_loop import Ending, MessageLoop

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

    from chronicle.journal.records import Lease, Session
    from chronicle.workspace.port import Opened, Workspace
    from podium.address import Address
    from podium.turn.ports import Environment, WorkspaceRequest

__all__ = ["SimulatedAgent", "SimulatedHost"]

_GRACE_S: Final = 2.0
"""Grace period of a hook after its deadline, before its process is killed."""


@dataclass(slots=True)
class SimulatedAgent:
    """An agent of the fleet."""

    address: Address
    session: Session
    host: SimulatedHost | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class SimulatedHost:
    """A process that runs one agent; the `Stage` of its hooks."""

    def __init__(self, world: World, agent: SimulatedAgent, host_id: str, lease: Lease, *, unclean: bool) -> None:
        self._world = world
        self._agent = agent
        self.lease = lease
        self._unclean = unclean
        self._workspace: LinkedWorkspace | None = None
        self._task: asyncio.Task[None] | None = None
        self.host_id = host_id
        self.link, self.node = world.new_link(host_id[-6:])
        self.activation: WatchedActivation | None = None
        self.loop: MessageLoop | None = None

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self._task is not None and (self._task.done() or not self.link.alive)

    def start(self) -> None:
        """Start the process."""
        STAGE.set(self)
        self._task = self.link.spawn(self._run(), self.host_id)
        self._task.add_done_callback(self._done)

    async def wake(self) -> WatchedActivation:
        """Start an activation."""
        environment = self._world.environment(self.link, self._open)
        activation = WatchedActivation(self._agent.address, self.lease, environment, self)
        try:
            await activation.start(unclean=self._unclean)
        except BaseException:
            await activation.abandon()
            raise
        return activation

    async def end(self) -> None:
        """Stop in order, and wait for it."""
        if self.loop is not None:
            self.loop.stop()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            self.activation = await self.wake()
        except (Evicted, StaleEpoch, Unavailable, Conflict):
            return
        self.loop = MessageLoop(self.activation, Puppet.idle_timeout_s)
        renewing = self.link.spawn(self._renew(self.loop), "renewing")
        try:
            ending = await self.loop.run()
            if ending is not Ending.EVICTED:
                release = self.link.store.release_lease
                await self.link.run_blocking(release, self.lease.session_id, self.lease.epoch)
        except (Unavailable, StaleEpoch, OSError) as error:
            # The workspace could not be rolled back, or the lease not released: the next host takes over.
            self.note("gives up", type(error).__name__)
        finally:
            renewing.cancel()

    async def _renew(self, loop: MessageLoop) -> None:
        """Renew the lease, and kill the process if a hook exceeds its deadline and grace period."""
        while True:
            await asyncio.sleep(LEASE_MS / 3000)
            deadline_s = self.activation.deadline_s if self.activation is not None else None
            if deadline_s is not None and asyncio.get_running_loop().time() > deadline_s + _GRACE_S:
                self.link.die()
            try:
                now_ms = self._world.environment(self.link, self._open).clock.now_ms()
                leases = [(self.lease.session_id, self.lease.epoch)]
                if await self.link.run_blocking(self.link.store.renew_leases, leases, now_ms, LEASE_MS):
                    loop.evict()
            except ChronicleError:
                continue

    async def _open(self, request: WorkspaceRequest) -> Opened:
        return await self.link.run_blocking(self._opened, request)

    def _opened(self, request: WorkspaceRequest) -> Opened:
        opened = self._world.nodes.open(self.node, request)
        self._workspace = LinkedWorkspace(opened.workspace, self.link)  # closed even if the host dies now
        return type(opened)(cast("Workspace", self._workspace), opened.recovered)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._workspace is not None:
            self._workspace.workspace.close()
        self._agent.changed.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and self.link.alive:
            self._world.failed(self.host_id, error)

    def note(self, *what: object) -> None:
        """Add a line to the protocol."""
        self._world.note(self.host_id[-6:], *what)

    # -- the stage ------------------------------------------------------------------------------------------------

    def files(self, root: Path | None = None) -> MutableMapping[str, str]:
        """Return the files of the host's workspace; raises in a dead host."""
        if root is not None:
            self.link.maybe_die()
        assert self._workspace is not None
        return self._world.nodes.files(self._workspace.workspace)

    def now_ms(self) -> int:
        """Return the time of the world."""
        return self._world.clock.now_ms()

    def count_attempt(self, number: int) -> int:
        """Count an attempt of a message."""
        return self._world.count_attempt(number)

    def run_step(self, number: int, name: str) -> int:
        """Return a number that no other run of a step returns."""
        self._world.oracle.check_run(self.lease.session_id, self.lease.epoch, number, name)
        return self._world.next_run()

    def next_run(self) -> int:
        """Return a number that no other call returns."""
        return self._world.next_run()

    def handled(self, activation: Activation, seq: int) -> None:
        """Compare an activation's memory with the record, right after a commit of its own."""
        try:
            files = dict(self.files())
        except OSError:
            files = None
        self._world.oracle.shown_live(self.lease.session_id, seq, to_json(activation.state), files)


class WatchedActivation(Activation):
    """An activation whose memory is compared with the record after each step."""

    def __init__(self, address: Address, lease: Lease, environment: Environment, host: SimulatedHost) -> None:
        super().__init__(Puppet, address, lease, environment)
        self._host = host

    async def handle_next(self) -> Step:
        step = await super().handle_next()
        if step is not Step.NOTHING:
            self._host.handled(self, self._runner.ledger.head.seq)
        return step
