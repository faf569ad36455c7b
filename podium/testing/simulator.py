"""`Simulator`: agents, clients and hosts under a seeded schedule of faults, through the real turn code.

One seed is one run: the same agents, messages, delays, deaths and takeovers each time, in virtual time. What runs is
`podium.activation`, its ledger and its loop as they are; the journal, the workspaces, the network and the fleet around
them are under the simulation's control. `podium.testing.watch` checks every commit as it is accepted, and at the end
every message, every state, every tree and the chain. ::

    Simulator(seed=7).run()

A run that fails raises `Broken` with the last things that happened and the command that repeats it. From a shell::

    python -m podium.testing.simulator --seed 7 --verbose
    python -m podium.testing.simulator --seed 0 --runs 10000
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.canonical import encode
from chronicle.errors import ChronicleError, Conflict, IdempotencyConflict, LeaseHeld, StaleEpoch, Unavailable
from chronicle.ids import IdSource
from chronicle.journal.memory import MemoryJournalStore
from chronicle.journal.records import MessageStatus, NewMessage
from chronicle.journal.verify import verify_session
from podium.activation import Activation, Step
from podium.address import Address
from podium.branching import fork_agent, rewind_agent
from podium.busy import BusyPolicy
from podium.courier import deliver_outbox
from podium.environment import Environment
from podium.errors import AgentAsleep, AgentAwake, AgentExists, Evicted
from podium.loop import ActivationLoop, Ending
from podium.record import read_agent
from podium.state import to_json
from podium.testing.faults import CALM, LATEST_S, Link, LinkedWorkspace, Weather
from podium.testing.puppet import KEYS, STAGE, Puppet, script
from podium.testing.scratch import Forest, Node
from podium.testing.virtual_time import LoopClock, VirtualLoop
from podium.testing.watch import Broken, Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from pathlib import Path

    from chronicle.blobs.store import BlobStore
    from chronicle.journal.records import Lease, Receipt, Session
    from chronicle.journal.store import JournalStore
    from chronicle.workspace.port import Opened, TreeRef, Workspace
    from podium.environment import WorkspaceRequest
    from podium.events import Part
    from podium.stream import Frame

__all__ = ["Broken", "Places", "Run", "ScratchPlaces", "Simulator", "main"]

_LEASE_MS: Final = 2_000
_CLIENTS_S: Final = 5.0
"""Time in which clients come and things go wrong."""
_PATIENCE_S: Final = 600.0
"""Time in which everything must be handled once nothing goes wrong any more."""
_GRACE_S: Final = 2.0
"""Time that a hook has to end by itself after its deadline, before its process is ended."""
_REPLAYED_TURNS: Final = 3
_LAST_NOTES: Final = 60


@dataclass(frozen=True, slots=True)
class Run:
    """What a run did."""

    seed: int
    commits: int
    messages: int
    deaths: int
    seconds: float
    """Of virtual time."""


class Places:
    """Where workspaces are: nodes, and the store of their trees."""

    nodes: int
    blobs: BlobStore | None = None
    """Where trees are blobs, for going back to earlier files; ``None`` where they are something else."""

    def open(self, node: int, request: WorkspaceRequest) -> Opened:
        """Open a workspace on a node."""
        raise NotImplementedError

    def files(self, workspace: Workspace) -> MutableMapping[str, str]:
        """Return an open workspace's files; writing to the mapping writes them."""
        raise NotImplementedError

    def tree(self, ref: TreeRef) -> dict[str, str]:
        """Return a sealed tree's files."""
        raise NotImplementedError

    def lose_power(self, node: int, generator: random.Random) -> None:
        """Take from a node's disk some of what nobody synced, after its processes ended."""


class ScratchPlaces(Places):
    """Workspaces in memory."""

    nodes = 3

    def __init__(self) -> None:
        self._forest = Forest()
        self._nodes = [Node(f"node{number}", self._forest) for number in range(self.nodes)]

    def open(self, node: int, request: WorkspaceRequest) -> Opened:
        """Open a workspace on a node."""
        return self._nodes[node].open(request.address.workspace_id, request.base, request.epoch)

    def files(self, workspace: Workspace) -> MutableMapping[str, str]:
        """Return an open workspace's files."""
        return cast("Any", workspace).files  # type: ignore[no-any-return]

    def tree(self, ref: TreeRef) -> dict[str, str]:
        """Return a sealed tree's files."""
        return self._forest.files(ref)

    def lose_power(self, node: int, generator: random.Random) -> None:
        """Tear what was not sealed."""
        self._nodes[node].lose_power(generator)


@dataclass(slots=True)
class _Agent:
    """An agent as the fleet sees it."""

    address: Address
    session: Session
    host: _Host | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Simulator:
    """One run.

    Args:
        seed: decides everything.
        store: makes the journal; in memory unless given.
        places: makes the workspaces; in memory unless given.
        verbose: print what happens as it happens.
    """

    def __init__(
        self,
        seed: int,
        *,
        store: Callable[[], JournalStore] = MemoryJournalStore,
        places: Callable[[], Places] = ScratchPlaces,
        verbose: bool = False,
    ) -> None:
        self.seed = seed
        self._verbose = verbose
        self._generator = random.Random(seed)
        self._loop = VirtualLoop()
        self._clock = LoopClock(self._loop)
        self._ids = IdSource(random.Random(seed + 1))
        self._places = places()
        self._blobs = self._places.blobs or MemoryBlobStore()
        self._store = store()
        self._watch = Watch(self._store, self._places.tree, self._noting("journal"))
        self._weather = Weather.of(self._generator)
        self._link = self._new_link("outside")
        self._agents: list[_Agent] = []
        self._hosts: list[_Host] = []
        self._notes: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=_LAST_NOTES)
        self._tries: dict[int, int] = {}
        self._sent = asyncio.Event()
        self._over = False
        self._main: asyncio.Task[None] | None = None

    def run(self) -> Run:
        """Run to the end.

        Raises:
            Broken: something happened that must never happen; says how to see it again.
        """
        self._loop.set_exception_handler(self._unexpected)
        try:
            with _silence():
                self._main = self._loop.create_task(self._play())
                try:
                    self._loop.run_until_complete(self._main)
                except asyncio.CancelledError:
                    if self._watch.broken is None:
                        raise
                finally:
                    self._end_all()
            if self._watch.broken is not None:
                raise self._watch.broken
        except Exception as error:
            what = str(self._watch.broken or f"{type(error).__name__}: {error}")
            raise Broken(f"seed {self.seed}: {what}\n{self._protocol()}\n{self._again()}") from error
        finally:
            self._loop.close()
            self._store.close()
        return Run(
            self.seed,
            self._watch.commits,
            sum(len(line.messages) for line in self._watch.lines.values()),
            sum(not host.link.alive for host in self._hosts),
            self._loop.time(),
        )

    # -- the play -------------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        draw = self._generator
        for key in draw.choice((KEYS[:1], KEYS[1:], KEYS)):
            self._add_agent(Address("puppet", key), self._new_session(f"puppet/{key}"))
        _ = self._link.spawn(self._deliver(), "courier")
        async with asyncio.TaskGroup() as group:
            for number in range(draw.randrange(2, 10)):
                group.create_task(self._client(number))
            for _ in range(draw.randrange(5)):
                group.create_task(self._disturb())
        self._weather = CALM
        await asyncio.sleep(LATEST_S)
        async with asyncio.timeout(_PATIENCE_S):
            while self._store.outbox() or any(line.waiting for line in self._watch.lines.values()):  # noqa: ASYNC110 - time costs nothing here
                await asyncio.sleep(0.5)
        self._over = True
        async with asyncio.timeout(_PATIENCE_S):
            for host in self._hosts:
                await host.end()
        self._watch.check_inboxes()
        for agent in self._agents:
            await self._inspect(agent)

    async def _client(self, number: int) -> None:
        """Send one message, and follow it, or take it back, or have it handled first, or leave."""
        draw = self._generator
        await asyncio.sleep(draw.random() * _CLIENTS_S)
        agent = draw.choice(self._agents)
        body = encode(script(draw, number))
        key = f"key {number}" if draw.random() < 0.8 else None
        receipt = await self._admit(agent, body, key)
        if receipt is None:
            return
        self._poke(agent)
        what = draw.random()
        if what < 0.5:
            await self._follow(agent, receipt)
        elif what < 0.65:
            await asyncio.sleep(draw.random() * 2)
            if agent.host is not None and agent.host.activation is not None:
                self._note("client", "takes back", receipt.message_id[-6:])
                with suppress(Evicted):  # then the next activation handles it
                    await agent.host.activation.cancel(receipt.message_id)
                self._poke(agent)
            await self._follow(agent, receipt)
        elif what < 0.8:
            await asyncio.sleep(draw.random() * 0.5)
            policy = draw.choice((BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK, BusyPolicy.STEER))
            if agent.host is not None and agent.host.activation is not None:
                self._note("client", "asks to", policy, "for", receipt.message_id[-6:])
                await agent.host.activation.preempt(receipt.message_id, policy)
            await self._follow(agent, receipt)
        elif what < 0.9 and key is not None:
            await asyncio.sleep(draw.random() * 3)
            again = await self._admit(agent, body, key)
            if again is not None and again.message_id != receipt.message_id:
                self._watch.fail(f"{key!r} was admitted twice")
            await self._must_conflict(agent, key)

    async def _admit(self, agent: _Agent, body: bytes, key: str | None) -> Receipt | None:
        """Admit a message; with a key, as often as it takes."""
        while True:
            now_ms = self._clock.now_ms()
            message = NewMessage(self._ids.message(now_ms), body, now_ms, key)
            try:
                return self._link.store.admit(agent.session.session_id, message)
            except Unavailable:
                if key is None:
                    return None
                await asyncio.sleep(0.2)

    async def _must_conflict(self, agent: _Agent, key: str) -> None:
        try:
            await self._admit(agent, b'{"another":"body"}', key)
        except IdempotencyConflict:
            return
        self._watch.fail(f"{key!r} was taken for another message")

    async def _follow(self, agent: _Agent, receipt: Receipt) -> None:
        """Read a message's frames to the end, from whatever host has them."""
        while True:
            host = agent.host
            frames: list[Frame] = []
            if host is None or host.ended or host.activation is None:
                if self._watch.line(agent.session.session_id).messages[receipt.message_id].status in _SETTLED:
                    return
                await asyncio.sleep(0.3)
                continue
            reading = host.link.spawn(_read_all(host.activation, receipt, frames), "reading")
            await asyncio.wait({reading})
            if reading.cancelled():
                continue
            error = reading.exception()
            if error is None:
                self._watch.shown(agent.session.session_id, receipt.message_id, frames)
                return
            if not isinstance(error, AgentAsleep):
                raise error
            await asyncio.sleep(0.1)

    # -- the fleet ------------------------------------------------------------------------------------------------

    def _add_agent(self, address: Address, session: Session) -> None:
        agent = _Agent(address, session)
        self._agents.append(agent)
        _ = self._link.spawn(self._supervise(agent), f"supervise {address}")

    def _new_session(self, name: str) -> Session:
        now_ms = self._clock.now_ms()
        return self._watch.ensure_session(name, self._ids.session(now_ms), self._ids.branch(now_ms), now_ms)

    async def _supervise(self, agent: _Agent) -> None:
        """See to it that an agent runs while messages wait for it, as a coordinator does."""
        while not self._over:
            agent.changed.clear()
            if (agent.host is None or agent.host.ended) and self._store.pending(agent.session.session_id, limit=1):
                self._wake(agent, usurp=False)
            try:
                async with asyncio.timeout(0.5):
                    await agent.changed.wait()
            except TimeoutError:
                continue

    async def _deliver(self) -> None:
        """Carry what agents send to each other, also when its sender has died."""
        while not self._over:
            try:
                async with asyncio.timeout(1.0):  # a sender may die before it says that it sent something
                    await self._sent.wait()
            except TimeoutError:
                if not self._store.outbox():
                    continue
            self._sent.clear()
            try:
                receivers = deliver_outbox(self._link.store, self._ids, self._clock.now_ms())
            except Unavailable:
                await asyncio.sleep(0.2)
                self._sent.set()
                continue
            if self._store.outbox():
                self._sent.set()
            for address in receivers:
                if all(agent.address != address for agent in self._agents):
                    self._add_agent(address, self._store.session(str(address)))
            for agent in self._agents:
                if agent.address in receivers:
                    self._poke(agent)

    def _wake(self, agent: _Agent, *, usurp: bool) -> None:
        """Take an agent's lease and give it to a new host.

        Args:
            usurp: take it from a host that lives, which is wrongly thought dead.
        """
        host_id = self._ids.other("host_", self._clock.now_ms())
        try:
            before = self._link.store.lease(agent.session.session_id)
            dead = before is not None and all(host.ended for host in self._hosts if host.host_id == before.holder)
            lease = self._link.store.acquire_lease(
                agent.session.session_id, host_id, self._clock.now_ms(), _LEASE_MS, takeover=dead or usurp
            )
        except (LeaseHeld, Unavailable):
            return
        host = _Host(self, agent, host_id, lease, unclean=before is not None)
        agent.host = host
        self._hosts.append(host)
        host.start()

    def _poke(self, agent: _Agent) -> None:
        agent.changed.set()
        if agent.host is not None and agent.host.loop is not None and self._generator.random() < 0.9:
            agent.host.loop.poke()

    async def _disturb(self) -> None:
        """Do one thing that goes wrong, or just happens, at some time."""
        draw = self._generator
        await asyncio.sleep(draw.random() * _CLIENTS_S * 1.5)
        agent = draw.choice(self._agents)
        host = agent.host
        match draw.choice(
            ("kill", "kill", "stall", "usurp", "usurp", "power", "stop", "again", "fork", "rewind", "rewind")
        ):
            case "kill" if host is not None:
                host.link.die()
            case "stall" if host is not None:
                host.link.stall(1 + 6 * draw.random())
            case "usurp":
                self._wake(agent, usurp=True)
            case "power":
                self._lose_power(draw.randrange(self._places.nodes))
            case "stop" if host is not None and host.loop is not None:
                host.loop.stop()
            case "again":
                self._put_back(agent)
            case "fork":
                await self._fork(agent)
            case "rewind":
                await self._rewind(agent)

    def _lose_power(self, node: int) -> None:
        self._note("fleet", "node", node, "loses power")
        for host in self._hosts:
            if host.node == node:
                host.link.die()
        self._places.lose_power(node, self._generator)

    def _put_back(self, agent: _Agent) -> None:
        session_id = agent.session.session_id
        parked = self._store.messages(session_id, MessageStatus.PARKED)
        if parked:
            self._watch.retry_message(session_id, parked[0].message_id)
            self._poke(agent)

    async def _fork(self, agent: _Agent) -> None:
        """Fork an agent at some turn, again after each fault, as a user would."""
        line = self._watch.line(agent.session.session_id)
        if not line.created:
            return
        quiet = "quiet-" if agent.address.key.startswith("quiet") else ""
        address = Address("puppet", f"{quiet}fork{self._generator.getrandbits(32):08x}")
        turn = self._generator.choice(list(line.past))
        for _ in range(20):
            try:
                fork_agent(self._link.store, agent.address, turn, address, self._ids, self._clock.now_ms())
            except Unavailable:
                await asyncio.sleep(0.3)
                continue
            except AgentExists:  # it was made, but the answer was lost
                pass
            self._note("fleet", "forks", str(agent.address), "at turn", turn)
            self._add_agent(address, self._store.session(str(address)))
            return

    async def _rewind(self, agent: _Agent) -> None:
        """Let an agent sleep, and take it back, unless it was woken meanwhile."""
        if agent.host is not None:
            await agent.host.end()
        line = self._watch.line(agent.session.session_id)
        if not line.created:
            return
        turn, blobs = self._generator.choice(list(line.past)), self._places.blobs
        only: Part | None = "state" if blobs is None else self._generator.choice((None, "state", "files"))
        now_ms = self._clock.now_ms()
        try:
            rewind_agent(self._link.store, self._blobs, agent.address, turn, only, self._ids, now_ms)
        except (AgentAwake, Unavailable):
            return
        self._note("fleet", str(agent.address), "went back to turn", turn, only or "")

    # -- at the end -----------------------------------------------------------------------------------------------

    async def _inspect(self, agent: _Agent) -> None:
        """Wake an agent once more, somewhere, and compare all of it with what it must be."""
        line = self._watch.line(agent.session.session_id)
        report = verify_session(self._store, agent.session)
        if not report.ok:
            self._watch.fail(f"{agent.address}: {report.damage}")
        if not line.created:
            return
        turn = self._generator.choice(list(line.past))
        if read_agent(self._store, self._blobs, agent.address, turn).state != line.past[turn].state:
            self._watch.fail(f"{agent.address} reads otherwise at turn {turn}")
        lease = self._watch.acquire_lease(
            agent.session.session_id, "inspector", self._clock.now_ms(), _LEASE_MS, takeover=True
        )
        host = _Host(self, agent, "inspector", lease, unclean=False)
        activation = await host.wake()
        if (to_json(activation.state), host.files()) != (line.state, line.expected.files):
            self._watch.fail(f"{agent.address} wakes as {to_json(activation.state)} with {host.files()}")
        await activation.abandon()

    # -- what hosts use -------------------------------------------------------------------------------------------

    @property
    def places(self) -> Places:
        """Where workspaces are."""
        return self._places

    @property
    def watch(self) -> Watch:
        """What checks the run."""
        return self._watch

    def environment(self, link: Link, opener: Callable[[WorkspaceRequest], Any]) -> Environment:
        """Return what an activation is given."""
        return Environment(
            link.store,
            self._blobs,
            link,
            self._clock,
            self._ids,
            opener,
            run_blocking=link.run_blocking,
            run_store=link.run_blocking,
            on_sent=self._sent.set,
            most_replayed_turns=_REPLAYED_TURNS,
        )

    def new_link(self, name: str) -> tuple[Link, int]:
        """Return a link for a host, and the node it runs on."""
        return self._new_link(name), self._generator.randrange(self._places.nodes)

    def tries(self, number: int) -> int:
        """Count one more try of a message, and return how many there were before."""
        before = self._tries.get(number, 0)
        self._tries[number] = before + 1
        return before

    def failed(self, host: str, error: BaseException) -> None:
        """Say that a host ended in a way that no fault explains."""
        if self._watch.broken is None:
            self._watch.broken = Broken(f"{host} ended with {type(error).__name__}: {error}")
            self._watch.broken.__cause__ = error
        if self._main is not None:
            _ = self._main.cancel()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _new_link(self, name: str) -> Link:
        return Link(cast("JournalStore", self._watch), self._generator, self._weather_now, self._noting(name))

    def _weather_now(self) -> Weather:
        return self._weather

    def _noting(self, who: str) -> Callable[..., None]:
        return lambda *what: self._note(who, *what)

    def _note(self, who: str, *what: object) -> None:
        if self._verbose:
            print(f"{self._loop.time():9.4f}  {who:12} ", *what)  # noqa: T201
        self._notes.append((self._loop.time(), who, what))

    def _unexpected(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what was raised where nobody waits for it."""
        self.failed("the loop", context.get("exception") or RuntimeError(context["message"]))

    def _end_all(self) -> None:
        self._over = True
        self._weather = CALM
        for link in (self._link, *(host.link for host in self._hosts)):
            link.die()
        while tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks))

    def _protocol(self) -> str:
        if self._verbose:
            return ""
        return "\n".join(f"{at_s:9.4f}  {who:12} {' '.join(map(str, what))}" for at_s, who, what in self._notes)

    def _again(self) -> str:
        return f"run it again: python -m podium.testing.simulator --seed {self.seed} --verbose"


class _Host:
    """A process that runs one agent; the stage on which its hooks play."""

    def __init__(self, simulator: Simulator, agent: _Agent, host_id: str, lease: Lease, *, unclean: bool) -> None:
        self._simulator = simulator
        self._agent = agent
        self._lease = lease
        self._unclean = unclean
        self._workspace: LinkedWorkspace | None = None
        self._task: asyncio.Task[None] | None = None
        self.host_id = host_id
        self.link, self.node = simulator.new_link(host_id[-6:])
        self.activation: _WatchedActivation | None = None
        self.loop: ActivationLoop | None = None

    @property
    def ended(self) -> bool:
        """Whether its process is gone."""
        return self._task is not None and (self._task.done() or not self.link.alive)

    def start(self) -> None:
        """Begin to run the agent."""
        STAGE.set(self)
        self._task = self.link.spawn(self._run(), self.host_id)
        self._task.add_done_callback(self._done)

    async def wake(self) -> _WatchedActivation:
        """Start an activation."""
        environment = self._simulator.environment(self.link, self._open)
        activation = _WatchedActivation(self._agent.address, self._lease, environment, self)
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
        self.loop = ActivationLoop(self.activation, Puppet.idle_timeout_s)
        renewing = self.link.spawn(self._renew(self.loop), "renewing")
        try:
            ending = await self.loop.run()
            if ending is not Ending.EVICTED:
                release = self.link.store.release_lease
                await self.link.run_blocking(release, self._lease.session_id, self._lease.epoch)
        except (Unavailable, StaleEpoch, OSError) as error:
            # The workspace could not be rolled back, or the lease not given back: the next host takes over.
            self.note("gives up", type(error).__name__)
        finally:
            renewing.cancel()

    async def _renew(self, loop: ActivationLoop) -> None:
        """Renew the lease, and end the process when a hook goes on after its time."""
        while True:
            await asyncio.sleep(_LEASE_MS / 3000)
            due_s = self.activation.due_s if self.activation is not None else None
            if due_s is not None and asyncio.get_running_loop().time() > due_s + _GRACE_S:
                self.link.die()
            try:
                now_ms = self._simulator.environment(self.link, self._open).clock.now_ms()
                renew = self.link.store.renew_lease
                await self.link.run_blocking(renew, self._lease.session_id, self._lease.epoch, now_ms, _LEASE_MS)
            except StaleEpoch:
                loop.evict()
            except ChronicleError:
                continue

    async def _open(self, request: WorkspaceRequest) -> Opened:
        return await self.link.run_blocking(self._opened, request)

    def _opened(self, request: WorkspaceRequest) -> Opened:
        opened = self._simulator.places.open(self.node, request)
        self._workspace = LinkedWorkspace(opened.workspace, self.link)  # to be closed even if the host dies right now
        return type(opened)(cast("Workspace", self._workspace), opened.recovered)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._workspace is not None:
            self._workspace.workspace.close()
        self._agent.changed.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and self.link.alive:
            self._simulator.failed(self.host_id, error)

    def note(self, *what: object) -> None:
        """Write a line into the protocol."""
        self._simulator._note(self.host_id[-6:], *what)

    # -- the stage ------------------------------------------------------------------------------------------------

    def files(self, root: Path | None = None) -> MutableMapping[str, str]:
        """Return the files of the host's workspace; a dead host has none."""
        if root is not None:
            self.link.maybe_die()
        assert self._workspace is not None
        return self._simulator.places.files(self._workspace.workspace)

    def tries(self, number: int) -> int:
        """Count one more try of a message."""
        return self._simulator.tries(number)

    def handled(self, activation: Activation, seq: int) -> None:
        """Compare an activation's memory with what was committed, right after a commit of its own."""
        try:
            files = dict(self.files())
        except OSError:
            files = None
        self._simulator.watch.shown_live(self._lease.session_id, seq, to_json(activation.state), files)


class _WatchedActivation(Activation):
    """An activation whose memory is compared with the record after each step."""

    def __init__(self, address: Address, lease: Lease, environment: Environment, host: _Host) -> None:
        super().__init__(Puppet, address, lease, environment)
        self._host = host

    async def handle_next(self) -> Step:
        step = await super().handle_next()
        if step is not Step.NOTHING:
            self._host.handled(self, self._runner.ledger.head.seq)
        return step


_SETTLED: Final = {MessageStatus.CONSUMED, MessageStatus.CANCELLED, MessageStatus.PARKED}


async def _read_all(activation: Activation, receipt: Receipt, frames: list[Frame]) -> None:
    async for batch in activation.follow(receipt.message_id):
        frames.extend(batch)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep the log of thousands of simulated faults to ourselves."""
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
    parser.add_argument("--verbose", action="store_true", help="print what happens")
    options = parser.parse_args(arguments)
    commits = 0
    for seed in range(options.seed, options.seed + options.runs):
        try:
            commits += Simulator(seed, verbose=options.verbose).run().commits
        except Broken as broken:
            print(broken, file=sys.stderr)  # noqa: T201
            return 1
    print(f"{options.runs} runs, {commits} commits: nothing broken")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
