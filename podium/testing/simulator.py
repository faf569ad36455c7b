"""`Simulator`: agents, clients and hosts under a seeded schedule of faults, through the real turn code.

One seed is one run: the same agents, messages, delays, deaths and takeovers each time, in virtual time. What runs is
`podium.turn.activation`, its ledger and its loop as they are; the journal, the workspaces, the network and the fleet
around them are under the simulation's control. `podium.testing.simulation.oracle` checks every commit as it is
accepted, and at the end every message, every state, every tree and the chain. ::

    Simulator(seed=7).run()

A run that fails raises `Broken` with the last steps and the command that repeats it. From a shell::

    python -m podium.testing.simulator --seed 7 --verbose
    python -m podium.testing.simulator --seed 0 --runs 10000
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.verify import verify_session
from podium.address import Address
from podium.agent_record import read_agent
from podium.state import to_json
from podium.testing.simulation.clients import Clients
from podium.testing.simulation.faults import LATEST_S, NO_FAULTS
from podium.testing.simulation.fleet import SimulatedFleet
from podium.testing.simulation.host import SimulatedAgent, SimulatedHost
from podium.testing.simulation.model import Broken
from podium.testing.simulation.nodes import ScratchNodes, SimulatedNodes
from podium.testing.simulation.puppet import CROWD, KEYS
from podium.testing.simulation.world import LEASE_MS, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.journal.port import JournalStore

__all__ = ["Broken", "Run", "ScratchNodes", "SimulatedNodes", "Simulator", "main"]

_PATIENCE_S: Final = 600.0
"""Virtual time limit for all that clients do and wait for, and for handling the rest after the faults have stopped."""


@dataclass(frozen=True, slots=True)
class Run:
    """The counts of a run."""

    seed: int
    commits: int
    batches: int
    """Of more than one commit or step."""
    messages: int
    deaths: int
    seconds: float
    """Of virtual time."""


class Simulator:
    """One run.

    Args:
        seed: determines everything.
        store: creates the journal; in memory by default.
        nodes: creates the nodes; in memory by default.
        with_steps: whether messages have operations in steps.
        with_asks: whether agents ask others, and processes with several agents die.
        with_pauses: whether turns wait for decisions, and sleep.
        verbose: print each step.
    """

    def __init__(
        self,
        seed: int,
        *,
        store: Callable[[], JournalStore] = MemoryJournalStore,
        nodes: Callable[[], SimulatedNodes] = ScratchNodes,
        with_steps: bool = False,
        with_asks: bool = False,
        with_pauses: bool = False,
        verbose: bool = False,
    ) -> None:
        self.seed = seed
        self._world = World(
            seed,
            store(),
            nodes(),
            with_steps=with_steps,
            with_asks=with_asks,
            with_pauses=with_pauses,
            verbose=verbose,
        )
        self._fleet = SimulatedFleet(self._world)
        self._clients = Clients(self._world, self._fleet)

    def run(self) -> Run:
        """Run to the end.

        Raises:
            Broken: an invariant does not hold; the message has the command that repeats the run.
        """
        world = self._world
        world.loop.set_exception_handler(self._unexpected)
        try:
            with _silence():
                world.main = world.loop.create_task(self._play())  # bare: its loop does not run yet
                try:
                    world.loop.run_until_complete(world.main)
                except asyncio.CancelledError:
                    if world.oracle.verdict.broken is None:
                        raise
                finally:
                    self._end_all()
            if world.oracle.verdict.broken is not None:
                raise world.oracle.verdict.broken
        except Exception as error:
            what = str(world.oracle.verdict.broken or f"{type(error).__name__}: {error}")
            raise Broken(f"seed {self.seed}: {what}\n{world.protocol()}\nrun it again: {self._command()}") from error
        finally:
            world.loop.close()
            world.store.close()
        return Run(
            self.seed,
            world.oracle.commits,
            world.oracle.batches,
            sum(len(line.messages) for line in world.oracle.lines.values()),
            sum(not host.link.alive for host in self._fleet.hosts),
            world.loop.time(),
        )

    def _command(self) -> str:
        """Return the command that repeats the run."""
        kinds = (" --steps" if self._world.with_steps else "") + (" --asks" if self._world.with_asks else "")
        kinds += " --pauses" if self._world.with_pauses else ""
        return f"python -m podium.testing.simulator --seed {self.seed}{kinds} --verbose"

    async def _play(self) -> None:
        draw = self._world.generator
        keys = draw.choice((KEYS[:1], KEYS[1:], KEYS))
        if self._world.with_asks:  # an asker may die before it wakes the one that it asked
            keys = KEYS
        for key in (*KEYS, *CROWD) if self._world.crowded else keys:
            self._fleet.add_agent(Address("puppet", key), self._fleet.new_session(f"puppet/{key}"))
        _ = self._world.link.spawn(self._fleet.deliver(), "courier")
        for number in range(2):  # a coordinator that is presumed dead may go on
            _ = self._world.link.spawn(self._fleet.remind(), f"reminders {number}")
        if self._world.with_pauses:
            _ = self._world.link.spawn(self._clients.decide(), "who decides")
            _ = self._world.link.spawn(self._clients.look(), "who looks")
        _ = self._world.link.spawn(self._clients.judge(), "who judges")
        async with asyncio.timeout(_PATIENCE_S), asyncio.TaskGroup() as group:
            for number in range(draw.randrange(2, 10)):
                group.create_task(self._clients.send_one(number))
            for _ in range(draw.randrange(5)):
                group.create_task(self._fleet.disturb())
        self._world.fault_rates = NO_FAULTS
        await asyncio.sleep(LATEST_S)
        async with asyncio.timeout(_PATIENCE_S):
            while self._is_busy():  # noqa: ASYNC110 - time costs nothing here
                await asyncio.sleep(0.5)
        self._world.over = True
        async with asyncio.timeout(_PATIENCE_S):
            for host in self._fleet.hosts:
                await host.end()
        self._world.oracle.check_inboxes()
        for agent in self._fleet.agents:
            await self._inspect(agent)

    def _is_busy(self) -> bool:
        """Whether there is something to deliver, to fire or to handle."""
        store = self._world.store
        if store.outbox() or store.next_reminder_ms() is not None:
            return True
        return any(line.waiting or line.paused for line in self._world.oracle.lines.values())

    async def _inspect(self, agent: SimulatedAgent) -> None:
        """Wake an agent once more, on some node, and compare it with its model."""
        line = self._world.oracle.line(agent.session.session_id)
        report = verify_session(self._world.store, agent.session)
        if not report.ok:
            self._world.oracle.verdict.fail(f"{agent.address}: {report.damage}")
        if not line.created:
            return
        turn = self._world.generator.choice(list(line.past))
        if read_agent(self._world.store, self._world.blobs, agent.address, turn).state != line.past[turn].state:
            self._world.oracle.verdict.fail(f"{agent.address} reads otherwise at turn {turn}")
        lease = self._world.link.store.acquire_lease(
            agent.session.session_id, "inspector", self._world.clock.now_ms(), LEASE_MS, takeover=True
        )
        host = SimulatedHost(self._world, agent, "inspector", lease, unclean=False)
        activation = await host.wake()
        if (to_json(activation.state), host.files()) != (line.state, line.expected.files):
            self._world.oracle.verdict.fail(f"{agent.address} wakes as {to_json(activation.state)} with {host.files()}")
        await activation.abandon()

    def _unexpected(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception that no task awaits."""
        self._world.failed("the loop", context.get("exception") or RuntimeError(context["message"]))

    def _end_all(self) -> None:
        world = self._world
        world.over = True
        world.fault_rates = NO_FAULTS
        for link in (world.link, *(host.link for host in self._fleet.hosts)):
            link.die()
        while tasks := asyncio.all_tasks(world.loop):
            for task in tasks:
                task.cancel()
            world.loop.run_until_complete(asyncio.wait(tasks))


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress the log of simulated faults."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(_: object, __: str, ___: object) -> dict[str, Any]:
    raise structlog.DropEvent


def main(arguments: list[str] | None = None) -> int:
    """Run simulations from a shell; returns the exit code, 1 when one is broken."""
    parser = argparse.ArgumentParser(
        prog="python -m podium.testing.simulator", description="Simulate agents and faults."
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds")
    parser.add_argument("--steps", action="store_true", help="messages with steps")
    parser.add_argument("--asks", action="store_true", help="agents that ask others, and processes of several agents")
    parser.add_argument("--pauses", action="store_true", help="turns that wait for decisions, and sleep")
    parser.add_argument("--verbose", action="store_true", help="print what happens")
    options = parser.parse_args(arguments)
    commits = 0
    for seed in range(options.seed, options.seed + options.runs):
        try:
            kinds = {"with_steps": options.steps, "with_asks": options.asks, "with_pauses": options.pauses}
            run = Simulator(seed, **kinds, verbose=options.verbose).run()
            commits += run.commits
        except Broken as broken:
            print(broken, file=sys.stderr)  # noqa: T201
            return 1
    print(f"{options.runs} runs, {commits} commits: nothing broken")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
