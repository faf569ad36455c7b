"""The host without Ray: one process with activations of agents, their leases, workspaces and message loops.

A warm host has imported an agent's code. In process isolation it is assigned to one agent, runs it until the activation
ends, and is then ended by its node manager; it is not reused. In shared isolation it runs any number of agents of its
class, each for the time of an activation. What differs for an activation is in `coordinator.host.surroundings`.

A separate thread renews the leases and enforces the deadlines of turns (`coordinator.host.host_watch`), because user
code may block the event loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import structlog

from chronicle.canonical import decode
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, Unavailable
from chronicle.ids import BlobId, IdSource
from coordinator.fleet.code.code_stamp import CodeStamps
from coordinator.fleet.liveness import TASKS_CANCELLED
from coordinator.fleet.model import Ended, Loaded, ProjectView
from coordinator.fleet.nodes.nodes import needs_of
from coordinator.host.delivery import DeliveryServer, Notice
from coordinator.host.host_models import HostModels
from coordinator.host.host_telemetry import HostTelemetry
from coordinator.host.host_watch import HostWatch
from coordinator.host.hosted_agent import HostedAgent
from coordinator.host.lease_releases import LeaseReleases
from coordinator.host.loop_watch import RUNNING_AGENT, LoopWatch
from coordinator.host.memory_watch import MemoryWatch
from coordinator.host.node.process_exit import own_bytes
from coordinator.host.node.process_marks import ProcessMark
from coordinator.host.stores import open_stores
from coordinator.host.surroundings import HostParts, ManyAgents, OneAgent, Surroundings
from coordinator.host.warmup import warm_up
from coordinator.logs import log_to
from podium.agent.base import BaseAgent, sandbox_of
from podium.agent.handler_specs import policy_of
from podium.agent.loader import load_agent_class
from podium.agent.sources import imported_sources
from podium.errors import AgentAsleep, HostDied
from podium.sandbox.policy import Policy
from podium.sandbox.probe import known_rung, probe
from podium.settings import set_workspace_variable
from podium.tasks import BackgroundTasks
from podium.turn.activation import Activation
from podium.turn.message_loop import Ending

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.ids import MessageId
    from chronicle.journal.records import Lease
    from coordinator.fleet.model import Code
    from coordinator.host.host_config import HostConfig
    from coordinator.telemetry.reports import Report
    from podium.address import Address
    from podium.agent.base import Isolation
    from podium.sandbox.policy import Rung
    from podium.turn.busy import BusyPolicy
    from podium.turn.journal.ledger import Offer
    from podium.turn.ports import Environment, Frames, Reader
    from podium.turn.reading import Read
    from podium.turn.stream import Frame

__all__ = ["AgentHost"]

_log = structlog.stdlib.get_logger("coordinator.host")


class AgentHost:
    """One host.

    Args:
        config: the configuration of this host.
        on_sent: called when an agent has committed messages to other agents to its outbox.
        report: sends a report of measurements.
        wake: has an agent that was asked check its inbox; it may be lost.
        full: tells that this host, by its id, is to get no more agents; called from a thread.
        frames, read: as of `podium.turn.ports.Environment`.
    """

    def __init__(
        self,
        config: HostConfig,
        on_sent: Callable[[], None],
        report: Callable[[Report], Awaitable[None]],
        wake: Callable[[Address], Awaitable[None]],
        full: Callable[[str], None],
        frames: Frames | None = None,
        read: Reader | None = None,
    ) -> None:
        self._config = config
        self._frames = frames
        self._read_another = read
        self._on_sent = on_sent
        ProcessMark(config.home_identity, config.host_id).put_on()  # before any user code: its processes inherit it
        set_workspace_variable(config.link)
        log_to(Path(config.logs) / "hosts.log")
        self._telemetry = HostTelemetry(config, report)
        self._clock = SystemClock()
        self._ids = IdSource()
        self._stores = open_stores(config, self._clock, self._ids, wake)
        self._store = self._stores.journal
        self._models = HostModels(Path(config.models), self._ids, self._clock)
        self._watch = HostWatch(config, self._store, self._clock, full)
        self._releases = LeaseReleases(self._store)
        self._class: type[BaseAgent] | None = None
        self._surroundings: Surroundings | None = None
        self.loaded: Loaded | None = None
        """The result of `load`."""
        self.types_to_tell: tuple[str, ...] | None = None
        """The agent types that the agents may send messages to; ``None`` for any. May be set from any thread."""
        self._agents: dict[Address, HostedAgent] = {}
        self._activating: dict[Address, bool] = {}
        """The agents whose activation has begun and not ended, and whether they are still wanted."""
        self._configs: dict[str, JsonObject] = {}
        """Configurations by their canonical JSON: agents of a type have the same one."""
        self._starting, self._running = BackgroundTasks(), BackgroundTasks()
        self._deliveries = DeliveryServer(self.deliver)
        self._ends: list[Ended] = []
        """The ends of activations of which `wait_ended` was not told that they are known."""
        self._ends_count = 0
        self._an_end = asyncio.Event()
        self._was_cancelled = False
        """Whether code in this process has cancelled the task of an activation, which no other code does."""

    def load(self, code: Code, isolation: Isolation | None = None) -> Loaded:
        """Import an agent's class; return the code and its sources. Call it on the agents' event loop.

        Args:
            isolation: ``process`` to run one agent only, whatever the class declares.

        Raises:
            AgentLoadError: the class is missing or invalid, its import raised, or its bundle does not fit this node.
            ChronicleError: its bundle cannot be read.
        """
        before = frozenset(sys.modules)
        self._class = agent_class = load_agent_class(self._file_of(code), code.class_name)
        sources = () if code.bundle else imported_sources(code.file, before)
        is_alone = (isolation or agent_class.isolation) == "process"
        self.loaded = Loaded(
            code,
            sources,
            CodeStamps().of(sources),
            agent_class.isolation,
            is_alone,
            policy_of(agent_class).attempts,
            needs_of(agent_class),
            agent_class.on_failed is not BaseAgent.on_failed,
            (sandbox_of(agent_class) or Policy()).at_least,
        )
        parts = HostParts(
            self._config,
            self._stores,
            self._clock,
            self._ids,
            self._on_sent,
            lambda: self.types_to_tell,
            self._models,
            self._telemetry,
            self._watch,
            self._frames,
            self._read_another,
        )
        if is_alone:
            self._surroundings = OneAgent(parts, agent_class)
            return self.loaded
        self._surroundings = ManyAgents(parts, agent_class, code.agent_type)
        self._watch.loop_watch = LoopWatch(self._clock)
        self._watch.memory_watch = MemoryWatch(self._config.shared_host_bytes, lambda: own_bytes(os.getpid()) or 0)
        return self.loaded

    async def prepare(self) -> None:
        """Do what the first activation would have to do otherwise: open the journal, and warm up."""
        with suppress(ChronicleError):
            await self._stores.run(self._store.sessions, "/")  # there is none of that name
        await warm_up()
        if self._class is not None and sandbox_of(self._class) is not None:
            await probe()  # its first message waits for that

    async def activate(
        self,
        address: Address,
        lease: Lease,
        *,
        unclean: bool,
        lost: str | None = None,
        withdrawn: Sequence[MessageId] = (),
        project: ProjectView | None = None,
    ) -> int:
        """Activate an agent: load its state, open its workspace and begin to handle its messages.

        Args:
            unclean: the previous activation did not end in order.
            lost: a short description of how its process ended; ``None`` if not known.
            withdrawn: messages to drop first; see `coordinator.fleet.cancellation`.
            project: the agent's configuration, and the agent types that it may send messages to; by default without
                configuration, and any.

        Returns:
            the number of turns that the agent has committed.

        Raises:
            StateError: the stored state does not fit the class.
            AgentLoadError: the class's ``__init__`` or a default of its State raised.
            ChronicleError: journal or workspace cannot be opened.
            AgentAsleep: `stop` was called meanwhile.
        """
        if self._class is None or self._surroundings is None:
            raise RuntimeError("a host activates only after it loaded code")
        if address in self._agents or address in self._activating:  # under an earlier lease, and it has not ended yet
            raise Unavailable(f"host {self._config.host_id} is ending an earlier activation of {address}")
        project = project or ProjectView()
        self.types_to_tell = project.types_to_tell
        config = self._configs.setdefault(project.config, cast("JsonObject", decode(project.config.encode())))
        RUNNING_AGENT.set(address)
        structlog.contextvars.bind_contextvars(agent_id=str(address), epoch=lease.epoch)
        self._activating[address] = True
        enter = partial(self._surroundings.enter, address, config, unclean=unclean)
        starting = self._start(address, lease, enter, unclean, lost, withdrawn)
        try:  # in a task of the agent's, as its class may block
            activation = await self._starting.start(starting, f"activate {address}")
        finally:
            del self._activating[address]
        agent = HostedAgent(activation, self._class.idle_timeout_s, self._store)
        self._agents[address] = agent
        self._deliveries.tell(Notice(address, lease.epoch, activation.turn, project.config))
        running = self._running.start(self._run(agent, self._surroundings), f"agent {address}")
        running.add_done_callback(self._note_cancelled)
        return activation.turn

    # -- calls on the agents' event loop ---------------------------------------------------------------------------

    async def deliver(
        self, address: Address, message_id: MessageId, position: int | None, offer: Offer | None
    ) -> AsyncGenerator[list[Frame], None]:
        """Yield a message's frames in batches, up to its terminal frame.

        Args:
            position: of the message in the inbox, if known.
            offer: the message, if it was admitted a moment ago and is small.

        Raises:
            AgentAsleep: the agent is not awake here, or its activation is ending; deliver the message to the next one.
        """
        async with aclosing(self._agent(address).deliver(message_id, position, offer)) as batches:
            async for batch in batches:
                yield batch

    async def read(self, address: Address, message: dict[str, Any]) -> Read:
        """Call a read-only handler of an agent; see `Activation.read`.

        Raises:
            AgentAsleep: the agent is not awake here, or its activation is over.
        """
        return await self._agent(address).read(message)

    def stop(self, address: Address, grace_s: float | None = None) -> None:
        """End an agent in order after its running turn; see `HostedAgent.stop`. It need not be awake here.

        An activation that is under way is given up when it has started.
        """
        if address in self._activating:
            self._activating[address] = False
        if address in self._agents:
            self._agents[address].stop(grace_s)

    def stop_all(self, grace_s: float | None = None) -> None:
        """End all agents in order, as `stop`."""
        for agent in self._agents.values():
            agent.stop(grace_s)

    def poke(self, address: Address) -> None:
        """Have an agent check its inbox for a new message. It need not be awake here."""
        if address in self._agents:
            self._agents[address].poke()

    async def wait_ended(self, seen: int) -> Sequence[Ended]:
        """Return the ends of activations that are not known yet; wait for one if there is none.

        Args:
            seen: the number of the last end that is known; 0 for none.

        Raises:
            HostDied: code in this process has cancelled an activation, and who knows what else: the host is unusable.
        """
        while True:
            if self._was_cancelled:
                raise HostDied(TASKS_CANCELLED)
            self._ends = [end for end in self._ends if end.number > seen]
            if self._ends:
                return self._ends
            self._an_end.clear()
            await self._an_end.wait()

    # -- calls from any thread ------------------------------------------------------------------------------------

    async def cancel(self, address: Address, message_id: MessageId) -> None:
        """Cancel a message of an agent; see `HostedAgent.cancel`.

        Raises:
            AgentAsleep: the agent is not awake here, or its activation has ended.
        """
        await self._agent(address).cancel(message_id)

    def preempt(self, address: Address, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """Apply the policy of an admitted message to an agent that is busy; see `HostedAgent.preempt`.

        Raises:
            AgentAsleep: the agent is not awake here.
        """
        return self._agent(address).preempt(message_id, policy)

    def on_exit_call(self) -> None:
        """Note that the caller is about to end this process; a read counts no attempt of a message beside it."""
        from podium.turn.reading import in_read  # noqa: PLC0415  few agents have such handlers

        if in_read():
            self._watch.spare()

    def doing(self, address: Address) -> tuple[MessageId | None, float | None, Rung | None]:
        """Return the message of an agent's running turn, and the seconds left to its hook; see `HostedAgent.doing`.

        The last one is the strongest sandbox that works here, if that is known.

        Raises:
            AgentAsleep: the agent is not awake here.
        """
        return *self._agent(address).doing(self._clock.monotonic_s()), known_rung()

    def runs(self, address: Address) -> bool:
        """Whether an agent is awake here."""
        return address in self._agents

    def retire(self, address: Address, grace_s: float | None = None) -> None:
        """End an agent in order after its running turn; see `HostedAgent.retire`.

        Raises:
            AgentAsleep: the agent is not awake here.
        """
        self._agent(address).retire(grace_s)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _file_of(self, code: Code) -> Path:
        """Return the file of a code on this node, where its bundle is unpacked if it has one."""
        if not code.bundle:
            return Path(code.file)
        from podium.code.unpacking import BundleCache  # noqa: PLC0415  of homes with deploys only

        bundles = BundleCache(Path(self._config.bundles))
        return bundles.unpack(self._stores.blobs, BlobId(code.bundle)) / code.file

    def _agent(self, address: Address) -> HostedAgent:
        agent = self._agents.get(address)
        if agent is None:
            raise AgentAsleep(f"host {self._config.host_id} does not run {address}")
        return agent

    async def _start(
        self,
        address: Address,
        lease: Lease,
        enter: Callable[[], Environment],
        unclean: bool,
        lost: str | None,
        withdrawn: Sequence[MessageId],
    ) -> Activation:
        """Start an activation; clean up after it if it fails or is not wanted any more."""
        assert self._class is not None
        assert self._surroundings is not None
        activation: Activation | None = None
        self._watch.hold(address, lease)
        try:
            activation = Activation(self._class, address, lease, enter())
            await activation.start(unclean=unclean, lost=lost)
            for message_id in withdrawn:
                await activation.cancel(message_id)
            await self._deliveries.start(Path(self._config.deliveries), self._config.group)
            if not self._activating[address]:
                raise AgentAsleep(f"the activation of {address} took too long, and was given up")
        except BaseException:
            self._watch.remove(address)
            if activation is not None:
                await activation.abandon()
            await self._surroundings.leave(address, evicted=False)
            raise
        return activation

    async def _run(self, agent: HostedAgent, surroundings: Surroundings) -> None:
        """Run an agent to the end of its activation, and report it."""
        ending, problem = "failed", None
        self._watch.add(agent)
        self._telemetry.start()
        try:
            ending = await agent.run()
            await surroundings.leave(agent.address, evicted=ending is Ending.EVICTED)
            self._watch.remove(agent.address)
            if ending is not Ending.EVICTED:
                await self._releases.release(agent.activation.lease)
        except Exception as error:  # noqa: BLE001  an activation may fail with any exception
            _log.exception("agent_failed", agent_id=str(agent.address))
            ending, problem = "failed", f"{type(error).__name__}: {error}"
            await surroundings.leave(agent.address, evicted=True)
        finally:
            self._watch.remove(agent.address)
            del self._agents[agent.address]
            self._deliveries.tell(Notice(agent.address, agent.activation.lease.epoch, None))
            if self._watch.loop_watch is None:  # the process is ended; a shared host goes on
                self._deliveries.close()
        if not self._agents:
            await self._telemetry.flush()
        self._ends_count += 1
        self._ends.append(Ended(self._ends_count, agent.address, ending, problem))
        self._an_end.set()

    def _note_cancelled(self, running: asyncio.Task[None]) -> None:
        """Note that the task of an activation was cancelled, perhaps before it began: it has reported no end."""
        if running.cancelled():
            self._was_cancelled = True
            self._an_end.set()
