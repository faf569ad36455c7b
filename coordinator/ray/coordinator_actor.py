"""The coordinator's Ray actor: decides where agents live, and sees to it that they do.

Its loop is observe, plan, act. It holds no truth of its own: leases are in the store and hosts are named actors in Ray,
so a coordinator that is started again finds what is there (`_recover`). It is off the path of a message once the
caller knows the route. The hosts' processes, and who watches over them, are in `coordinator.ray.host_pool`.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import ray
import structlog

from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError, StorageRefused, Unavailable
from chronicle.ids import IdSource
from chronicle.journal.sqlite import SqliteJournalStore
from coordinator.fleet.background_tasks import Tasks
from coordinator.fleet.cancellation import TakingBack
from coordinator.fleet.code_stamp import CodeStamps
from coordinator.fleet.holds import Holds
from coordinator.fleet.leases import HOST_PREFIX, LEASE_POLL_S, HostLeases
from coordinator.fleet.model import Assign, Fleet, Host, HostStatus, Retire, Route, StartHost
from coordinator.fleet.plan import plan
from coordinator.fleet.wakes import Waking, Wakings
from coordinator.logs import log_to
from coordinator.ray.cluster import cause_of, find_actor, lives
from coordinator.ray.host_pool import Hosts
from podium.address import Address
from podium.errors import AgentAsleep, HostDied, InvalidAddress
from podium.messages.courier import deliver_outbox

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import MessageId
    from chronicle.journal.records import Lease, Session
    from coordinator.fleet.model import Action, Code, Loaded

__all__ = ["CoordinatorActor", "CoordinatorConfig"]

_TICK_S: Final = 2.0
"""How often the loop looks without being asked: for edited code and lost hosts."""
_MOST_LOSSES: Final = 2
"""Hosts that may die under one waking before it is given up: a warm host can die unseen, user code can kill each."""

_log = structlog.stdlib.get_logger("coordinator")


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """What a coordinator is told when it is started."""

    journal: Path
    logs: Path
    node_manager: str
    """Name of the node manager's actor."""
    warm_hosts: int
    most_starting: int
    lease_ttl_s: float
    silence_s: float
    wake_timeout_s: float
    stop_timeout_s: float


@ray.remote(max_restarts=-1, max_task_retries=-1)
class CoordinatorActor:
    """Places agents on hosts.

    Args:
        config: of this coordinator.
    """

    def __init__(self, config: CoordinatorConfig) -> None:
        self._config = config
        log_to(config.logs / "coordinator.log")
        self._store = SqliteJournalStore(config.journal, watched=True)
        self._clock = SystemClock()
        self._ids = IdSource()
        self._changed = asyncio.Event()
        self._tasks = Tasks()
        self._hosts = Hosts(config.node_manager, config.silence_s, self._tasks, self._changed.set, self._host_lost)
        self._routes: dict[Address, Route] = {}
        self._wakings = Wakings(self._changed.set)
        self._codes: dict[str, Code] = {}
        self._stamps = CodeStamps()
        self._sources: dict[Code, frozenset[str]] = {}
        """The files that hosts were seen to import for each code."""
        self._stopping = False
        self._leases = HostLeases(self._store, self._clock, config.lease_ttl_s, alive=lives)
        self._holds = Holds(self._clock)
        self._taking_back = TakingBack(self._store, self._clock, self._ids, self._cancel_in_host)
        self._deaths: dict[Address, str] = {}
        """How the last host of an agent died, in a few words."""
        self._progress_s = self._clock.monotonic_s()
        """When a host last became ready or took an agent."""
        self._begun = False
        self._beginning = asyncio.Lock()

    async def register(self, code: Code) -> None:
        """Make an agent type's code known: hosts are warmed for it, and its agents that have messages are woken."""
        await self._begin()
        if self._codes.get(code.agent_type) == code:
            return
        self._codes[code.agent_type] = code
        self._changed.set()
        for address in await asyncio.to_thread(self._addresses_with_pending, code.agent_type):
            self._wakings.want(address, code)

    async def wake(self, address: Address, code: Code, lost: Route | None = None) -> Route:
        """Return where an agent is, waking it if it sleeps.

        Args:
            code: its class, for a coordinator that was started again and was not told.
            lost: a route that did not work any more; the answer is another one.

        Raises:
            PodiumError: the agent's code or state cannot be loaded; its messages stay in its inbox.
            TimeoutError: no host became ready for as long as a waking may take.
        """
        await self._begin()
        self._codes.setdefault(address.agent_type, code)
        route = self._routes.get(address)
        if route is not None and lost is not None and route.epoch <= lost.epoch:
            await self._hosts.wait_gone(route.host_id)
            route = self._routes.get(address)
        if route is not None:
            return route
        waking = self._wakings.want(address, self._codes[address.agent_type])
        asked_s = self._clock.monotonic_s()
        while not waking.route.done():
            if address in self._holds:
                asked_s = self._clock.monotonic_s()
            # Many at once wait for each other's hosts: only standing still is too long.
            left_s = max(asked_s, self._progress_s) + self._config.wake_timeout_s - self._clock.monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            await asyncio.wait({waking.route}, timeout=left_s)
        return waking.route.result()

    async def retire_outdated(self, address: Address, code: Code) -> Route | None:
        """Let an agent's host end after the turn that runs, if it runs another code, or files that changed since.

        A host that is just being given the agent begins with the inbox before there is a route to it. So if it runs
        another code, the end of the waking is waited for, for half as long as a waking may take.

        Returns:
            the route to it, where no other message is begun from now on; ``None`` if there is nothing to be done.
        """
        await self._begin()
        host, waking = self._hosts.of(address), self._wakings.of(address)
        if host is not None and waking is not None and host.loaded is not None:
            if await asyncio.to_thread(host.loaded.is_of, code, self._stamps):
                return None
            await asyncio.wait({waking.route}, timeout=self._config.wake_timeout_s / 2)
        route = self._routes.get(address)
        if route is None or await asyncio.to_thread(route.runs, code, self._stamps):
            return None
        handle = find_actor(route.host_id)
        if handle is not None:
            _log.info("code_changed", agent_id=str(address), host_id=route.host_id)
            with contextlib.suppress(AgentAsleep, ray.exceptions.RayActorError):
                await handle.retire.remote()
        return route

    async def ping(self) -> None:
        """Give a sign of life."""

    async def cancel(self, address: Address, message_id: MessageId) -> None:
        """Take a message back, or give a parked one up; that is durable on return.

        Raises:
            NotFound: the agent never got it, or has handled it.
            TimeoutError: the agent's code would not stop, or its lease is a dead one's.
        """
        await self._begin()
        await self._taking_back.cancel(address, message_id, self._config.wake_timeout_s)

    async def take_back(self, address: Address, message_id: MessageId) -> None:
        """Let the next activation of an agent, if one comes before `handled`, drop a message first."""
        self._taking_back.note(address, message_id)

    async def handled(self, address: Address, message_id: MessageId) -> None:
        """Forget a message that was taken back."""
        self._taking_back.forget(address, message_id)

    async def hold(self, address: Address, holder: str) -> None:
        """Let an agent go to sleep after the turn that it is in; return when it sleeps.

        Until `release` it is woken for nobody, for a minute at most. Messages are admitted meanwhile.

        Args:
            holder: names this hold; several may hold an agent.
        """
        await self._begin()
        self._holds.keep(address, holder)
        told = None
        while self._holds.has(address, holder) and (host := self._hosts.of(address)) is not None:
            self._holds.keep(address, holder)
            watch = self._hosts.watch_of(host.host_id)
            if watch is None:  # it is just being woken
                await asyncio.sleep(LEASE_POLL_S)
                continue
            if told != host.host_id and (handle := find_actor(host.host_id)) is not None:
                handle.stop.remote(patient=True)
                told = host.host_id
            await asyncio.wait({watch}, timeout=_TICK_S)

    async def release(self, address: Address, holder: str) -> None:
        """End a hold; an agent that has messages is woken."""
        self._holds.let_go(address, holder)
        await self.poke(address)

    async def poke(self, address: Address) -> bool:
        """Let an agent look into its inbox, waking it if messages wait.

        Returns:
            whether it will; ``False`` if its code is not known: it looks when it is talked to next.
        """
        await self._begin()
        route = self._routes.get(address)
        handle = find_actor(route.host_id) if route else None
        if handle is not None:
            handle.poke.remote()
            return True
        code = self._codes.get(address.agent_type)
        if code is None:
            return False
        if address in await asyncio.to_thread(self._addresses_with_pending, address.agent_type):
            self._wakings.want(address, code)
        self._changed.set()
        return True

    async def outbox_filled(self) -> None:
        """Deliver soon what an agent has sent to others."""
        await self._begin()
        self._changed.set()

    async def running(self) -> list[dict[str, Any]]:
        """Return the hosts there are, as plain values."""
        await self._begin()
        return [
            {
                "host_id": host.host_id,
                "status": host.status.value,
                "agent": str(host.address) if host.address else None,
                "code": f"{host.code.file}:{host.code.class_name}" if host.code else None,
            }
            for host in self._hosts
        ]

    async def stop(self) -> None:
        """End all agents in order, then all hosts; no agent is woken any more."""
        await self._begin()
        self._stopping = True
        ended = []
        for host in self._hosts:
            handle = find_actor(host.host_id)
            if host.status is HostStatus.ASSIGNED and handle is not None:
                ended.append(asyncio.ensure_future(self._stop_host(handle)))
        if ended:
            await asyncio.wait(ended, timeout=self._config.stop_timeout_s)
        for host in self._hosts:
            await self._hosts.end(host.host_id)
        self._tasks.cancel()

    # -- observe, plan, act ---------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Find what is there and start to plan, once; also after Ray has started this actor again."""
        async with self._beginning:
            if not self._begun:
                self._hosts.find_node()
                await self._recover()
                self._begun = True
                self._tasks.spawn(self._loop(), "coordinator-loop")

    async def _loop(self) -> None:
        while not self._stopping:
            self._changed.clear()
            try:
                await self._deliver_outbox()
                for action in plan(self._observe(), self._config.warm_hosts, self._config.most_starting):
                    self._act(action)
            except Exception:  # noqa: BLE001  a bug is logged; without the loop no agent would ever wake
                _log.exception("planning_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._changed.wait()

    async def _deliver_outbox(self) -> None:
        """Deliver what agents sent to others, and see to it that the receivers look into their inboxes.

        A receiver whose code is not known keeps what it got until its code is registered.
        """
        try:
            receivers = await asyncio.to_thread(deliver_outbox, self._store, self._ids, self._clock.now_ms())
        except ChronicleError as error:
            _log.warning("outbox_not_delivered", error=str(error))
            return
        for address in receivers:
            await self.poke(address)

    def _observe(self) -> Fleet:
        codes = set(self._codes.values())
        return Fleet(
            hosts=tuple(self._hosts),
            wanted=tuple(
                (address, code)
                for address, code in self._wakings
                if self._hosts.of(address) is None and address not in self._holds
            ),
            code_stamps={code: self._stamp_of(code) for code in sorted(codes)},
        )

    def _stamp_of(self, code: Code) -> str:
        """Return what identifies a code's files as they are now, as far as they are known."""
        return self._stamps.of(self._sources.get(code, frozenset({code.file})))

    def _act(self, action: Action) -> None:
        match action:
            case StartHost(code, stamp):
                host_id = self._ids.other(HOST_PREFIX, self._clock.now_ms())
                self._hosts.add(Host(host_id, code, stamp, HostStatus.STARTING))
                self._tasks.spawn(self._start_host(host_id, code, stamp), f"start-{host_id}")
            case Assign(host_id, address):
                self._hosts.assign(host_id, address)
                self._tasks.spawn(self._activate(host_id, address, self._wakings[address]), f"activate-{address}")
            case Retire(host_id):
                self._hosts.forget(host_id)  # at once, lest the next plan gives it to an agent
                self._tasks.spawn(self._hosts.end(host_id), f"retire-{host_id}")

    async def _start_host(self, host_id: str, code: Code, stamp: str) -> None:
        try:
            loaded = await self._hosts.start(host_id, code)
        except Exception as failure:  # noqa: BLE001  whatever it is, those who wait are told
            error = cause_of(failure)
            if isinstance(error, HostDied) and self._wakings.lose(code, error, _MOST_LOSSES):
                self._changed.set()
            else:
                self._wakings.refuse(code, error)
                self._codes.pop(code.agent_type, None)
            return
        self._learn_sources(loaded, stamp)
        self._hosts.warm(host_id, loaded)
        self._progress_s = self._clock.monotonic_s()
        self._changed.set()

    def _learn_sources(self, loaded: Loaded, stamp: str) -> None:
        """Note which files a code consists of, unless those that were known changed while a host imported them.

        Such a host keeps the stamp that it was started with, by which it is retired.
        """
        code = loaded.code
        if self._stamp_of(code) == stamp:
            self._sources[code] = self._sources.get(code, frozenset()).union(loaded.sources)
            self._hosts.stamp_again(code, stamp, self._stamp_of(code))

    async def _activate(self, host_id: str, address: Address, waking: Waking) -> None:
        lease: Lease | None = None
        unclean = False
        loaded = self._hosts.loaded(host_id)
        try:
            handle = find_actor(host_id)
            if handle is None:
                raise HostDied(f"host {host_id} died while it was warm")
            lease, unclean = taken = await self._leases.wait_for(address, host_id, self._config.wake_timeout_s)
            taken_back = await asyncio.to_thread(self._taking_back.noted, address)
            async with asyncio.timeout(self._config.wake_timeout_s):
                lost = self._deaths.get(address)
                turn = await handle.activate.remote(address, *taken, lost, taken_back)
            route = Route(host_id, taken[0].epoch, turn, loaded)
        except Exception as error:  # noqa: BLE001  whatever it is, those who wait are told
            _log.warning("wake_failed", agent_id=str(address), host_id=host_id, error=str(error))
            await self._hosts.end(host_id, died=isinstance(error, ray.exceptions.RayActorError))
            if lease is not None and not unclean:  # nothing was tried under it; else the next activation counts the try
                await self._give_back(lease)
            await self._wake_failed(address, waking, self._died(host_id, address, cause_of(error)))
            return
        self._deaths.pop(address, None)
        self._routes[address] = route
        self._progress_s = self._clock.monotonic_s()
        self._wakings.done(address, waking, route)
        self._hosts.watch_over(host_id)

    def _died(self, host_id: str, address: Address, error: Exception) -> Exception:
        """Return the error of a waking; if its host died, with how it did."""
        how = self._hosts.take_end(host_id)
        if how is None or not isinstance(error, HostDied):
            return error
        log = self._config.logs / f"{address.workspace_id}.log"
        return HostDied(f"the agent's process died while it was being woken: {how}; {log} says more")

    async def _give_back(self, lease: Lease) -> None:
        """Release a lease under which nothing was done; one that cannot be released runs out."""
        try:
            await asyncio.to_thread(self._store.release_lease, lease.session_id, lease.epoch)
        except ChronicleError as error:
            _log.warning("lease_not_released", session_id=lease.session_id, error=str(error))

    async def _wake_failed(self, address: Address, waking: Waking, error: Exception) -> None:
        """Leave an agent to the next host if its host or its mount service died, else tell those who wait for it."""
        again = isinstance(error, HostDied | Unavailable) and not isinstance(error, StorageRefused)
        if again and waking.losses < _MOST_LOSSES:
            waking.losses += 1
            try:
                await self._hosts.check_node()
            except Exception as failure:  # noqa: BLE001  what ails the node is what those who wait should hear of
                error = cause_of(failure)
            else:
                self._changed.set()
                return
        self._wakings.fail(address, waking, error)

    async def _host_lost(self, host: Host, how: str | None) -> None:
        """Wake the agent of a host that ended or died again if messages wait for it."""
        assert host.address is not None, "it was given to an agent"
        self._deaths.pop(host.address, None)
        if how is not None:
            self._deaths[host.address] = how
        route = self._routes.get(host.address)
        if route is not None and route.host_id == host.host_id:
            del self._routes[host.address]
        pending = await asyncio.to_thread(self._addresses_with_pending, host.address.agent_type)
        if host.address in pending and not self._stopping:
            code = self._codes.get(host.address.agent_type)
            if code is not None:
                self._wakings.want(host.address, code)

    async def _cancel_in_host(self, address: Address, message_id: MessageId) -> bool:
        """Take a message back where its agent is now; ``False`` if no host has it."""
        host = self._hosts.of(address)
        if host is None:
            return False
        handle = find_actor(host.host_id)
        if handle is None or self._hosts.watch_of(host.host_id) is None:  # it is just being woken, or gone
            await asyncio.sleep(LEASE_POLL_S)
            return True
        try:
            await handle.cancel.remote(message_id)
        except (AgentAsleep, ray.exceptions.RayActorError):
            await self._hosts.wait_gone(host.host_id)
        return True

    async def _stop_host(self, handle: Any) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            await handle.stop.remote()
            await handle.wait_ended.remote()

    # -- leases and names -----------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Take up agents that run already: this coordinator was started again."""
        for session in await asyncio.to_thread(self._store.sessions):
            await self._recover_agent(session)
        # Hosts that were warm or on their way are nobody's now, and so is what dead ones left on the node.
        await self._hosts.end_others()

    async def _recover_agent(self, session: Session) -> None:
        lease = await asyncio.to_thread(self._store.lease, session.session_id)
        if lease is None or find_actor(lease.holder) is None:
            return
        try:
            address = Address.parse(session.name)
        except InvalidAddress:
            return
        loaded = await self._hosts.ask_loaded(lease.holder)
        self._hosts.add(Host(lease.holder, None, "", HostStatus.ASSIGNED, address, loaded))
        self._routes[address] = Route(lease.holder, lease.epoch, 0, loaded)
        self._hosts.watch_over(lease.holder)

    def _addresses_with_pending(self, agent_type: str) -> list[Address]:
        with_pending = set(self._store.sessions_with_pending())
        return [
            Address.parse(session.name)
            for session in self._store.sessions(prefix=f"{agent_type}/")
            if session.session_id in with_pending
        ]
