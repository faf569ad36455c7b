"""The host without Ray: one process for one agent, with its lease, its workspace and its message loop.

A warm host has imported an agent's code. It is assigned to one agent, runs it until the activation ends, and is then
ended by its node manager; it is not reused. A separate thread renews the lease, because user code may block the event
loop; the same thread is the watchdog that ends the process when a turn ignores its deadline.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import faulthandler
import os
import sys
import threading
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

import structlog

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.canonical import decode
from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, StaleEpoch
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.ids import IdSource, MessageId
from chronicle.journal.committer import DirectCommitter
from chronicle.journal.sqlite import SqliteJournalStore
from chronicle.workspace.dir.workspace import open_dir_workspace
from chronicle.workspace.port import LayerSpec, Opened
from coordinator.fleet.code_stamp import CodeStamps, imported_sources
from coordinator.fleet.model import Loaded, ProjectView
from coordinator.host.delivery import DeliveryServer
from coordinator.host.path_locks import PathLocks, PathOwner, clear_path
from coordinator.host.process_exit import leave_last_words
from coordinator.host.process_marks import Mark
from coordinator.host.workspace_paths import WorkspacePaths
from coordinator.logs import log_to
from podium.agent.base import workspace_quota_of
from podium.agent.loader import load_agent_class
from podium.blocking import at_once
from podium.errors import AgentAsleep
from podium.settings import set_workspace_variable
from podium.turn.activation import Activation
from podium.turn.busy import BusyPolicy, may_preempt
from podium.turn.message_loop import Ending, MessageLoop
from podium.turn.ports import Environment, WorkspaceRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from chronicle.canonical import JsonObject
    from chronicle.journal.records import Lease
    from coordinator.fleet.model import Code
    from podium.address import Address
    from podium.agent.base import BaseAgent
    from podium.turn.stream import Frame

__all__ = ["AgentHost", "HostConfig"]

_DEADLINE_GRACE_S: Final = 5.0
"""Grace period of a turn after its deadline or its cancellation; then its process is ended."""
_EXIT_DEADLINE: Final = 75
"""Exit code of a host that ended itself because a turn ignored its deadline (EX_TEMPFAIL of sysexits.h)."""

_log = structlog.stdlib.get_logger("coordinator.host")


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The configuration of a host, fixed for its life."""

    host_id: str
    journal: str
    """Path of the journal's database."""
    blobs_url: str
    layers: str
    """The node's directory of workspace layers."""
    home_id: str
    home_identity: str
    """`coordinator.home.Home.identity`."""
    workspaces: str
    """Absolute directory of agents' workspace paths; see `coordinator.host.workspace_paths`."""
    path_locks: str
    """The node's directory of lock files of workspace paths."""
    link: str
    """Symlink to the agent's workspace path, dangling before the activation; ``AGENT_WORKSPACE`` until then."""
    zygote_socket: str
    presentation: Literal["fuse", "dir"]
    logs: str
    """Directory of the agents' logs."""
    lease_ttl_s: float
    last_words: str
    """Path of a file that this process writes before it ends itself."""
    deliveries: str
    """Path of the Unix socket for deliveries; see `coordinator.host.delivery`."""


class AgentHost:
    """One host.

    Args:
        config: the configuration of this host.
        on_sent: called when the agent has committed messages to other agents to its outbox.
    """

    def __init__(self, config: HostConfig, on_sent: Callable[[], None]) -> None:
        self._config = config
        self._on_sent = on_sent
        Mark(config.home_identity, config.host_id).put_on()  # before any user code: its processes inherit it
        set_workspace_variable(config.link)
        log_to(Path(config.logs) / "hosts.log")
        self._clock = SystemClock()
        self._ids = IdSource()
        self._store = SqliteJournalStore(Path(config.journal), watched=True)
        self._blobs = PackBlobStore(config.blobs_url)
        self._class: type[BaseAgent] | None = None
        self.loaded: Loaded | None = None
        """The result of `load`."""
        self.types_to_tell: tuple[str, ...] | None = None
        """The agent types that the agent may send messages to; ``None`` for any. May be set from any thread."""
        self._activation: Activation | None = None
        self._loop: MessageLoop | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Future[Ending] | None = None
        self._deliveries = DeliveryServer(self.deliver)
        self._path_lock = -1
        """Descriptor that holds the lock of the agent's workspace path until this process ends."""

    def load(self, code: Code) -> Loaded:
        """Import an agent's class; return the code and its sources.

        Raises:
            AgentLoadError: the class is missing or invalid, or its import raised.
        """
        before = frozenset(sys.modules)
        self._class = load_agent_class(Path(code.file), code.class_name)
        sources = imported_sources(code.file, before)
        self.loaded = Loaded(code, sources, CodeStamps().of(sources))
        return self.loaded

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
        """
        if self._class is None:
            raise RuntimeError("a host activates only after it loaded code")
        log_to(Path(self._config.logs) / f"{address.workspace_id}.log")
        project = project or ProjectView()
        self.types_to_tell = project.types_to_tell
        environment = Environment(
            self._store,
            self._blobs,
            DirectCommitter(self._store),
            self._clock,
            self._ids,
            self._open_workspace,
            self._on_sent,
            run_store=at_once,
            release_reserve=self._store.make_room,
            restore_reserve=self._store.put_by,
            config=cast("JsonObject", decode(project.config.encode())),
            known_types=lambda: self.types_to_tell,
        )
        activation = Activation(self._class, address, lease, environment)
        try:
            await activation.start(unclean=unclean, lost=lost)
        except BaseException:
            await activation.abandon()
            raise
        for message_id in withdrawn:
            await activation.cancel(message_id)
        self._activation = activation
        self._loop = MessageLoop(activation, self._class.idle_timeout_s)
        self._event_loop = asyncio.get_running_loop()
        await self._deliveries.start(Path(self._config.deliveries))
        self._ended = asyncio.ensure_future(self._run(self._loop, lease))
        return activation.turn

    async def deliver(self, message_id: MessageId) -> AsyncGenerator[list[Frame], None]:
        """Yield a message's frames in batches, up to its terminal frame.

        Raises:
            AgentAsleep: the activation is ending; deliver the message to the next one.
        """
        activation, loop = self._running()
        loop.poke()
        async with aclosing(activation.follow(message_id)) as batches:
            async for batch in batches:
                yield batch

    async def cancel(self, message_id: MessageId) -> None:
        """Cancel a pending, running or parked message; durable on return, unless the message is handled first.

        It may be called from any thread's event loop. If the turn of the message blocks the agent's event loop, it has
        a grace period of some seconds; then the process is ended.

        Raises:
            AgentAsleep: no agent is activated here, or its activation has ended.
        """
        activation, loop = self._running()
        assert self._event_loop is not None
        activation.expire_deadline(message_id)
        cancelling = asyncio.run_coroutine_threadsafe(self._cancel(activation, loop, message_id), self._event_loop)
        await asyncio.shield(asyncio.wrap_future(cancelling))  # the caller's cancellation must not stop it half-way

    async def _cancel(self, activation: Activation, loop: MessageLoop, message_id: MessageId) -> None:
        await activation.cancel(message_id)
        loop.poke()
        async for _ in activation.follow(message_id):
            pass

    def preempt(self, message_id: MessageId, policy: BusyPolicy) -> MessageId | None:
        """Apply the policy of an admitted message if the agent is busy with another one.

        It may be called from any thread. Code that blocks has the same grace period as with `cancel`.

        Returns:
            the message whose running turn is stopped in favour of the admitted one, if there is one. If that requires
            the end of this process, the next activation drops the message.

        Raises:
            AgentAsleep: no agent is activated here.
        """
        activation, _ = self._running()
        assert self._event_loop is not None
        stopped = self._stopped_for(message_id) if policy in {BusyPolicy.INTERRUPT, BusyPolicy.ROLLBACK} else None
        if stopped is not None:
            activation.expire_deadline(stopped)
        preempting = asyncio.run_coroutine_threadsafe(activation.preempt(message_id, policy), self._event_loop)
        preempting.add_done_callback(_log_failure)  # not awaited: code that blocks would delay the sender's stream
        return stopped

    def _stopped_for(self, message_id: MessageId) -> MessageId | None:
        """Return the message of the running turn, if the given one may preempt it."""
        activation, _ = self._running()
        running = activation.running_message_id
        if running is None or running == message_id:
            return None
        return running if may_preempt(self._store.message(message_id), self._store.message(running)) else None

    def stop(self, grace_s: float | None = None) -> None:
        """End in order after the running turn.

        Args:
            grace_s: limit of the turn from now on; then it is interrupted, its message stays pending, and no attempt is
                counted. ``None``: no limit.
        """
        if self._loop is not None and self._activation is not None:
            self._loop.stop()
            if grace_s is not None:
                asyncio.get_running_loop().call_later(grace_s, self._activation.interrupt)

    def retire(self) -> None:
        """End in order after the running turn, without a time limit, and begin no other turn.

        It may be called from any thread, and takes effect before it returns, even if the agent's code blocks.
        """
        _, loop = self._running()
        assert self._event_loop is not None
        loop.request_stop()
        self._event_loop.call_soon_threadsafe(loop.stop)

    async def wait_ended(self) -> Ending:
        """Wait for the end of the activation, and return how it ended.

        Raises:
            AgentAsleep: no agent is activated here yet.
            Exception: the activation failed; the agent is safe in the journal.
        """
        if self._ended is None:
            raise AgentAsleep(f"host {self._config.host_id} runs no agent yet")
        return await asyncio.shield(self._ended)

    def poke(self) -> None:
        """Check the inbox for a new message."""
        if self._loop is not None:
            self._loop.poke()

    # -- inside ---------------------------------------------------------------------------------------------------

    async def _run(self, loop: MessageLoop, lease: Lease) -> Ending:
        stop_renewing = threading.Event()
        renewer = threading.Thread(
            target=self._renew, args=(lease, stop_renewing, asyncio.get_running_loop()), name="lease", daemon=True
        )
        renewer.start()
        try:
            ending = await loop.run()
            if ending is not Ending.EVICTED:
                await asyncio.to_thread(self._store.release_lease, lease.session_id, lease.epoch)
            return ending
        finally:
            stop_renewing.set()
            self._deliveries.close()

    def _renew(self, lease: Lease, stop: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        """Renew the lease and enforce the turn's deadline, in a separate thread."""
        ttl_ms = round(self._config.lease_ttl_s * 1000)
        interval_s = self._config.lease_ttl_s / 3
        renew_at_s = self._clock.monotonic_s() + interval_s
        lost = False
        while not stop.wait(min(interval_s, 1.0)):
            self._end_if_overdue()
            if lost or self._clock.monotonic_s() < renew_at_s:
                continue
            renew_at_s = self._clock.monotonic_s() + interval_s
            try:
                self._store.renew_lease(lease.session_id, lease.epoch, self._clock.now_ms(), ttl_ms)
            except StaleEpoch as error:
                _log.warning("lease_lost", host_id=self._config.host_id, error=str(error))
                lost = True
                if self._loop is not None:
                    loop.call_soon_threadsafe(self._loop.evict)
            except ChronicleError as error:
                _log.warning("lease_not_renewed", host_id=self._config.host_id, error=str(error))

    def _end_if_overdue(self) -> None:
        """End the process if a turn runs past its deadline: code that blocks cannot be stopped otherwise."""
        activation = self._activation
        deadline_s = activation.deadline_s if activation is not None else None
        if (
            activation is not None
            and deadline_s is not None
            and self._clock.monotonic_s() > deadline_s + _DEADLINE_GRACE_S
        ):
            late = f"{_DEADLINE_GRACE_S:g} s after {activation.deadline_reason}"
            why = f"podium ended it, because the turn went on {late} and blocked the event loop"
            _log.error("turn_would_not_stop", agent_id=str(activation.address), host_id=self._config.host_id)
            sys.stdout.flush()
            faulthandler.dump_traceback()  # to the agent's log: shows where the code blocks
            leave_last_words(Path(self._config.last_words), why)
            os._exit(_EXIT_DEADLINE)

    async def _open_workspace(self, request: WorkspaceRequest) -> Opened:
        return await asyncio.to_thread(self._open, request)

    def _open(self, request: WorkspaceRequest) -> Opened:
        """Lock the agent's workspace path, which kills processes of earlier activations, and mount the workspace."""
        spec = LayerSpec(
            workspace_id=request.address.workspace_id,
            layers=Path(self._config.layers),
            base=request.base,
            epoch=request.epoch,
            turn=request.turn,
            quota=workspace_quota_of(self._class) if self._class is not None else None,
            gives_up_when_full=True,
        )
        paths = WorkspacePaths(Path(self._config.workspaces), self._config.home_id)
        path = paths.of(request.address)
        owner = PathOwner(self._config.host_id, request.epoch, str(request.address), self._config.home_identity)
        self._path_lock = PathLocks(Path(self._config.path_locks), self._config.home_identity).acquire(path, owner)
        paths.create()
        clear_path(path, self._config.host_id)
        self._link_to(path)
        if self._config.presentation == "fuse":
            opened = open_fuse_workspace(Path(self._config.zygote_socket), spec, self._config.blobs_url, path)
        else:
            root = spec.layers / spec.workspace_id / "files"
            opened = open_dir_workspace(spec, PackBlobStore(self._config.blobs_url), root, self._clock, shown_at=path)
            path.symlink_to(root, target_is_directory=True)
        set_workspace_variable(path)
        return opened

    def _link_to(self, path: Path) -> None:
        """Point this host's link at the workspace path, for code that read the link at its import."""
        link = Path(self._config.link)
        new = link.with_name(f"{link.name}.new")
        new.symlink_to(path, target_is_directory=True)
        new.replace(link)

    def _running(self) -> tuple[Activation, MessageLoop]:
        if self._activation is None or self._loop is None:
            raise AgentAsleep(f"host {self._config.host_id} runs no agent yet")
        return self._activation, self._loop


def _log_failure(preempting: concurrent.futures.Future[None]) -> None:
    """Log why a turn could not be preempted; the message then stays pending."""
    error = None if preempting.cancelled() else preempting.exception()
    if error is not None:
        _log.warning("not_preempted", error=str(error))
