"""Differences between a host of one agent and a host of many: the process around an activation.

| | `OneAgent` | `ManyAgents` |
|---|---|---|
| output and log of the process | the agent's file, from its activation on | one file for the class |
| commits | in the event loop, if the journal is a file | in a thread, many in one transaction |
| workspace | mounted before the first hook, ``AGENT_WORKSPACE`` | mounted when it is first used, no variable |
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, Protocol, TypeVar

import structlog

from chronicle.journal.committer import GroupCommitter
from chronicle.workspace.history.first_tree import put_first_tree
from chronicle.workspace.port import Opened
from coordinator.host.lazy_workspace import LazyWorkspace
from coordinator.host.mounting import Mounting
from coordinator.host.node.process_exit import leave_culprit
from coordinator.logs import log_to
from podium.agent.base import workspace_quota_of
from podium.blocking import in_threads
from podium.settings import NO_WORKSPACE_VARIABLE, forbid_workspace_variable, set_workspace_variable
from podium.turn.ports import Environment, WorkspaceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from chronicle.canonical import JsonObject
    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.workspace.port import TreeRef, Workspace
    from coordinator.host.host_config import HostConfig
    from coordinator.host.host_telemetry import HostTelemetry
    from coordinator.host.stores import HostStores
    from podium.address import Address
    from podium.agent.base import BaseAgent
    from podium.blocking import BlockingRunner
    from podium.turn.journal.ledger import Committer, LeaseWatch
    from podium.turn.ports import ForkOpener, Frames, Models, Reader, WorkspaceOpener

__all__ = ["HostParts", "ManyAgents", "OneAgent", "Surroundings"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_WORKSPACE_THREADS: Final = 8
"""Threads for calls of opened workspaces and the blob store: apart from those of ``asyncio.to_thread``, which agents
use and may block."""
_AGENTS_THREADS: Final = 64
"""Threads for the ``asyncio.to_thread`` of all agents of a shared host; Python's default is for a program of one."""
_NS_PER_MS: Final = 1_000_000

_log = structlog.stdlib.get_logger("coordinator.host")


@dataclass(frozen=True, slots=True)
class HostParts:
    """Parts of a host for all of its activations."""

    config: HostConfig
    stores: HostStores
    clock: Clock
    ids: IdSource
    on_sent: Callable[[], None]
    known_types: Callable[[], Collection[str] | None]
    models: Models
    telemetry: HostTelemetry
    leases: LeaseWatch | None = None
    frames: Frames | None = None
    read: Reader | None = None

    def environment(
        self,
        committer: Committer,
        open_workspace: WorkspaceOpener,
        config: JsonObject,
        run_blocking: BlockingRunner = asyncio.to_thread,
        open_fork: ForkOpener | None = None,
    ) -> Environment:
        """Return an activation's environment."""
        return Environment(
            self.stores.journal,
            self.stores.blobs,
            committer,
            self.clock,
            self.ids,
            open_workspace,
            self.on_sent,
            run_blocking=run_blocking,
            run_store=self.stores.run,
            config=config,
            known_types=self.known_types,
            leases=self.leases,
            asker=self.stores.asker,
            frames=self.frames,
            read=self.read,
            open_fork=open_fork,
            models=self.models,
            meter=self.telemetry.meter,
            tracer=self.telemetry.tracer,
        )


class Surroundings(Protocol):
    """The process around activations."""

    def enter(self, address: Address, config: JsonObject, *, unclean: bool) -> Environment:
        """Return the environment of an agent's activation, which begins.

        Args:
            config: the agent's configuration.
            unclean: the previous activation did not end in order.
        """
        ...

    async def leave(self, address: Address, *, evicted: bool) -> None:
        """Clean up after an activation, before its lease is released.

        Args:
            evicted: its lease was lost.
        """
        ...

    def close(self) -> None:
        """End what runs for the activations; blocks until then."""
        ...


class OneAgent:
    """The surroundings of one agent, which has the process for itself."""

    def __init__(self, parts: HostParts, agent_class: type[BaseAgent]) -> None:
        self._parts = parts
        self._quota = workspace_quota_of(agent_class)
        self._mounting = Mounting(parts.config, parts.clock)

    def enter(self, address: Address, config: JsonObject, *, unclean: bool) -> Environment:
        """See `Surroundings`."""
        del unclean  # the workspace is opened in any case, which recovers what was left in it
        log_to(Path(self._parts.config.logs) / f"{address.workspace_id}.log")
        leave_culprit(Path(self._parts.config.last_words), str(address))  # however the process ends from now on
        open_fork = partial(self._mounting.fork, quota=self._quota)
        committer = self._parts.stores.committer()
        return self._parts.environment(committer, self._open_workspace, config, open_fork=open_fork)

    async def leave(self, address: Address, *, evicted: bool) -> None:
        """See `Surroundings`; the process ends, and its node manager cleans up."""

    def close(self) -> None:
        """See `Surroundings`."""

    async def _open_workspace(self, request: WorkspaceRequest) -> Opened:
        return await asyncio.to_thread(self._open, request)

    def _open(self, request: WorkspaceRequest) -> Opened:
        path = self._mounting.claim(request)
        self._mounting.link_to(path)
        opened = self._mounting.open(request, self._quota, path)
        set_workspace_variable(path)
        return opened


class ManyAgents:
    """The surroundings of the agents of a shared host. It is made on their event loop.

    Args:
        agent_class: their class; its name is that of the log file.
        agent_type: its type.
    """

    def __init__(self, parts: HostParts, agent_class: type[BaseAgent], agent_type: str) -> None:
        self._parts = parts
        self._quota = workspace_quota_of(agent_class)
        self._mounting = Mounting(parts.config, parts.clock)
        self._committer = GroupCommitter(parts.stores.journal)
        self._threads = ThreadPoolExecutor(_WORKSPACE_THREADS, "workspace")
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_AGENTS_THREADS, "agents"))
        self._first_tree: TreeRef | None = None
        """The base of workspaces of new agents."""
        forbid_workspace_variable(f"AGENT_WORKSPACE {NO_WORKSPACE_VARIABLE}")
        log_to(Path(parts.config.logs) / f"shared-{agent_type}.log")

    def enter(self, address: Address, config: JsonObject, *, unclean: bool) -> Environment:
        """See `Surroundings`."""
        del address  # the log lines of its tasks name it

        async def open_workspace(request: WorkspaceRequest) -> Opened:
            return await self._opened(request, unclean=unclean)

        in_thread = in_threads(self._threads)

        async def run_blocking(call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            lazy = getattr(call, "__self__", None)
            if isinstance(lazy, LazyWorkspace) and lazy.is_instant(getattr(call, "__name__", "")):
                return call(*args, **kwargs)
            return await in_thread(call, *args, **kwargs)

        open_fork = partial(self._mounting.fork, quota=self._quota)
        return self._parts.environment(self._committer, open_workspace, config, run_blocking, open_fork)

    async def leave(self, address: Address, *, evicted: bool) -> None:
        """See `Surroundings`: the workspace's path is free for the agent's next host."""
        if self._mounting.has(address):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, partial(self._mounting.leave, address, evicted=evicted))

    def close(self) -> None:
        """See `Surroundings`."""
        self._committer.close()
        self._threads.shutdown()

    async def _opened(self, request: WorkspaceRequest, *, unclean: bool) -> Opened:
        """Return a workspace that is opened when it is used; at once, if there may be something to recover."""
        recovered: list[TreeRef] = []

        def open_it(base: TreeRef, turn: int) -> Workspace:
            now = WorkspaceRequest(request.address, base, request.epoch, turn)
            path = self._mounting.claim(now)
            self._mounting.record_use(path)
            opened = self._mounting.open(now, self._quota, path)
            if opened.recovered is not None:
                recovered.append(opened.recovered)
            return opened.workspace

        run = asyncio.get_running_loop().run_in_executor
        if request.base is None and self._first_tree is None:
            self._first_tree = await run(
                self._threads, put_first_tree, self._parts.stores.blobs, self._parts.clock.now_ms() * _NS_PER_MS
            )
        base = request.base or self._first_tree
        assert base is not None, "the first tree is stored"
        lazy = LazyWorkspace(base, request.turn, open_it)
        if self._mounting.may_have_changes(request.address, unclean=unclean):
            await run(self._threads, lambda: lazy.root)
        return Opened(lazy, recovered[-1] if recovered else None)
