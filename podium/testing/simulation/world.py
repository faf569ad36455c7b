"""The world of one simulated run: randomness, virtual time, the journal behind its oracle, and the protocol."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.ids import IdSource
from podium.messages.asking import StoreAsker
from podium.testing.simulation.faults import FaultRates, Link, SharedCommitter
from podium.testing.simulation.model import Broken
from podium.testing.simulation.oracle import JournalOracle
from podium.testing.simulation.virtual_time import LoopClock, VirtualLoop
from podium.turn.ports import Environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.journal.port import JournalStore
    from podium.address import Address
    from podium.testing.simulation.nodes import SimulatedNodes
    from podium.turn.ports import WorkspaceRequest

__all__ = ["CLIENTS_S", "LEASE_MS", "World"]

LEASE_MS: Final = 2_000
CLIENTS_S: Final = 5.0
"""Virtual time during which clients arrive and faults are injected."""
_REPLAYED_TURNS: Final = 3
_CROWDED: Final = 0.2
"""Share of the runs in which batches of commits gather; in the others, two agents hardly ever commit at once."""
_RUSH_S: Final = 0.2
_DISK_S: Final = 0.1
_SLOW_DISK_S: Final = 1.0
"""Longest writes of disks."""
_LAST_NOTES: Final = 60


async def _nobody(_: Address) -> None:
    """Wake nobody."""


class World:
    """State that all parts of a run share.

    Args:
        seed: determines everything.
        store: the journal.
        nodes: hold the workspaces.
        with_steps: whether messages have steps.
        with_asks: whether agents ask others, and the agents of a node with a shared committer die together.
        verbose: print each step.
        with_pauses: whether turns wait for decisions, and sleep.
    """

    def __init__(
        self,
        seed: int,
        store: JournalStore,
        nodes: SimulatedNodes,
        *,
        with_steps: bool,
        with_asks: bool,
        verbose: bool,
        with_pauses: bool = False,
    ) -> None:
        self.seed = seed
        self.with_steps = with_steps
        self.with_asks = with_asks
        self.with_pauses = with_pauses
        self.generator = random.Random(seed)
        self.loop = VirtualLoop()
        self.clock = LoopClock(self.loop)
        self.ids = IdSource(random.Random(seed + 1))
        self.nodes = nodes
        self.blobs = nodes.blobs or MemoryBlobStore()
        self.store = store
        self.oracle = JournalOracle(store, nodes.tree, self._noting("journal"))
        self.crowded = self.generator.random() < _CROWDED
        """Whether there are more agents, all in one process on a slow disk, and clients come almost at once."""
        self.arrivals_s = _RUSH_S if self.crowded else CLIENTS_S
        """Virtual time in which clients arrive."""
        self.fault_rates = FaultRates.of(self.generator)
        self.link = self._new_link("outside")
        """The link of clients, coordinators and couriers to the journal."""
        self.sent = asyncio.Event()
        """Set when an agent has sent messages to others."""
        self.wake: Callable[[Address], Awaitable[None]] = _nobody
        """Has an agent that was asked check its inbox."""
        self.over = False
        self.main: asyncio.Task[None] | None = None
        """The main task of the run; cancelled at the first violation."""
        self.oracle.verdict.stop = self._stop
        self._committers = [self._new_committer() for _ in range(nodes.count)]
        if self.crowded:
            self._committers = [SharedCommitter(self.link, self.generator, _SLOW_DISK_S)]
        self._processes: list[list[Link]] = [[] for _ in range(nodes.count)]
        """The hosts of each node since a shared process of it died."""
        self._verbose = verbose
        self._notes: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=_LAST_NOTES)
        self._attempts: dict[int, int] = {}
        self._runs = 100_000

    def new_link(self, name: str) -> tuple[Link, int]:
        """Return a link for a host, and the node it runs on."""
        node = self.generator.randrange(len(self._committers))
        link = self._new_link(name, self._committers[node])
        if self.with_asks and self._committers[node] is not None:
            process = self._processes[node]
            process.append(link)
            link.companions = process
        return link, node

    def environment(self, link: Link, opener: Callable[[WorkspaceRequest], Any]) -> Environment:
        """Return the environment of an activation."""
        return Environment(
            link.store,
            self.blobs,
            link,
            self.clock,
            self.ids,
            opener,
            run_blocking=link.run_blocking,
            run_store=link.run_blocking,
            on_sent=self.sent.set,
            asker=StoreAsker(link.store, self.blobs, self.ids, link.run_blocking, self.wake),
            most_replayed_turns=_REPLAYED_TURNS,
        )

    def count_attempt(self, number: int) -> int:
        """Count an attempt of a message, and return the number of earlier ones."""
        before = self._attempts.get(number, 0)
        self._attempts[number] = before + 1
        return before

    def next_run(self) -> int:
        """Return another number each time."""
        self._runs += 1
        return self._runs

    def failed(self, host: str, error: BaseException) -> None:
        """Record that a host ended in a way that no injected fault explains."""
        if self.oracle.verdict.broken is None:
            self.oracle.verdict.broken = Broken(f"{host} ended with {type(error).__name__}: {error}")
            self.oracle.verdict.broken.__cause__ = error
        self._stop()

    def _stop(self) -> None:
        if self.main is not None:
            _ = self.main.cancel()

    def note(self, who: str, *what: object) -> None:
        """Add a line to the protocol."""
        if self._verbose:
            print(f"{self.loop.time():9.4f}  {who:12} ", *what)  # noqa: T201
        self._notes.append((self.loop.time(), who, what))

    def protocol(self) -> str:
        """Return the last lines, unless all were printed."""
        if self._verbose:
            return ""
        return "\n".join(f"{at_s:9.4f}  {who:12} {' '.join(map(str, what))}" for at_s, who, what in self._notes)

    def _new_committer(self) -> SharedCommitter | None:
        """Return a shared committer for half of the nodes: their agents share one process."""
        return SharedCommitter(self.link, self.generator, _DISK_S) if self.generator.random() < 0.5 else None

    def _new_link(self, name: str, committer: SharedCommitter | None = None) -> Link:
        oracle = cast("JournalStore", self.oracle)
        return Link(oracle, self.generator, lambda: self.fault_rates, self._noting(name), committer)

    def _noting(self, who: str) -> Callable[..., None]:
        return lambda *what: self.note(who, *what)
