"""The coordinator's state: hosts, codes, wake requests and holds. A restart rebuilds it from Ray, hosts and clients."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from chronicle.canonical import encode
from chronicle.errors import ChronicleError
from coordinator.fleet.code.code_registry import CodeRegistry
from coordinator.fleet.deaths.quarantine import Quarantine
from coordinator.fleet.deaths.suspects import Suspects
from coordinator.fleet.host_table import HostTable
from coordinator.fleet.nodes.bundles import BundleFits
from coordinator.fleet.nodes.drains import Drains
from coordinator.fleet.nodes.nodes import LOCAL_NODE, NO_NEEDS, Needs, Node, unmet
from coordinator.fleet.plan import Observed, left_on
from coordinator.fleet.services.elsewhere import Elsewhere
from coordinator.fleet.wakes.quotas import held_asleep
from coordinator.fleet.wakes.requests import WakeRequests
from coordinator.fleet.wakes.retries import WakeRetries
from coordinator.fleet.wakes.sleep_holds import SleepHolds
from coordinator.registry.known_agents import KnownAgents
from coordinator.telemetry.reports import Totals
from podium.address import Address
from podium.errors import InvalidAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from coordinator.access.quotas import Quota
    from coordinator.fleet.model import Code, Loaded
    from coordinator.fleet.nodes.nodes import NodeId

__all__ = ["FleetState"]


_NO_FILES: Final = "the files of the service's machine (podium deploy)"
"""What nodes of other machines lack for a class that is not deployed."""


class FleetState:
    """The coordinator's state in memory, with the journal, which is authoritative.

    Args:
        store: the journal.
        clock: the source of time.
        ids: the source of ids of hosts and events.
        quarantine: the agents of shared classes that get processes of their own; by default none, kept in memory.
        quotas: returns what tenants may have, by tenant; by default there are no limits.
        share: what a host needs of its node where its class declares nothing else.
        drains: the nodes that are to have no agents; by default none, kept in memory.
        autoscaler: whether the cluster is asked for nodes if none has room.
    """

    def __init__(
        self,
        store: JournalStore,
        clock: Clock,
        ids: IdSource,
        quarantine: Quarantine | None = None,
        quotas: Callable[[], Mapping[str, Quota]] = dict,
        share: Needs = NO_NEEDS,
        drains: Drains | None = None,
        *,
        autoscaler: bool = False,
    ) -> None:
        self.nodes: Sequence[Node] = (Node(LOCAL_NODE),)
        """Those with a node manager."""
        self._share = share
        self.autoscaler = autoscaler
        self.store = store
        self.clock = clock
        self.ids = ids
        self.changed = asyncio.Event()
        """Set to run the next iteration of the coordinator's loop at once."""
        self.is_waiting = False
        """Whether another service has the home: hosts are kept warm, and no agent is woken."""
        self.stopping = False
        """Whether all agents are being ended: none is woken any more."""
        self.host_died = asyncio.Event()
        """Set while there may be agents with messages that nobody has told of them, as after the death of a host."""
        self.hosts = HostTable()
        self.codes = CodeRegistry()
        self.bundles = BundleFits()
        self.totals = Totals()
        """Measurements."""
        self.requests = WakeRequests(self.changed.set, clock, self.totals.recorder)
        self.holds = SleepHolds(clock)
        self.elsewhere = Elsewhere()
        """Agents that nothing wakes before they have ended their turns on the cluster of another service."""
        self.retries = WakeRetries(clock)
        self.quarantine = quarantine if quarantine is not None else Quarantine()
        self.drains = drains if drains is not None else Drains()
        self.suspects = Suspects()
        self.quotas = quotas
        self.over_quota: Mapping[Address, str] = {}
        """The requested agents that a quota kept asleep when the fleet was last observed, and why."""
        self.known = KnownAgents()
        self.progress_s = clock.monotonic_s()
        """When a host last became ready or activated an agent."""

    def progressed(self) -> None:
        """Record progress: a host became ready or activated an agent. Extends the deadline of all wakes."""
        self.progress_s = self.clock.monotonic_s()

    def observe(self) -> Observed:
        """Return the input of the next plan; reads the sources of all codes."""
        wanted = tuple(
            (address, code)
            for address, code in self.requests.waiting()
            if self.hosts.host_of(address) is None and address not in self.holds and address not in self.elsewhere
            if not self.is_waiting
        )
        placed = (placement.address for placement in self.hosts.placements())
        self.over_quota = held = held_asleep(wanted, placed, self.quotas())
        wanted = tuple((address, code) for address, code in wanted if address not in held)
        stamps = self.codes.current_stamps({code for _, code in self.requests})
        declared = self.codes.needs()
        return Observed(
            hosts=tuple(self.hosts),
            nodes=tuple(self._with_drains()),
            wanted=wanted,
            code_stamps=stamps,
            needs={code: self.needs_of_host(declared.get(code)) for code in stamps},
            unfit=self._unfit(stamps),
            scarce=frozenset(code for code, needs in declared.items() if needs is not None),
            shared=frozenset(self.codes.shared),
            latest=self.codes.latest_first(),
            unknown=frozenset(
                code for _, code in wanted if code not in self.codes.loaded or declared.get(code, NO_NEEDS) is None
            ),
            alone=frozenset(address for address, code in wanted if self.why_alone(address, code) is not None),
            groups={address: group for address, _ in wanted if (group := self.suspects.group_of(address)) is not None},
            last_nodes={
                address: node for address, _ in wanted if (node := self.hosts.last_node_of(address)) is not None
            },
        )

    def needs_of_host(self, declared: Needs | None) -> Needs:
        """Return what a host needs of its node.

        Args:
            declared: as its class declares; ``None`` if that is not known.
        """
        return self._share if declared is None else declared.over(self._share)

    def lacking(self, code: Code) -> str | None:
        """Return what the nodes lack for a host of a code beside the hosts that they have; ``None`` if one has room."""
        needs = self.needs_of_host(self.codes.needs().get(code, NO_NEEDS))
        return unmet([left_on(node, self.hosts) for node in self._with_drains()], needs, self._unfit([code]).get(code))

    def bundles_to_ask(self) -> list[tuple[NodeId, str]]:
        """Return of which nodes it has to be asked what they lack for which bundles."""
        codes = self.codes.current_stamps({code for _, code in self.requests})
        return self.bundles.to_ask([node.node_id for node in self.nodes], codes) if len(self.nodes) > 1 else []

    def lacks_for_bundle(self, code: Code) -> bool:
        """Whether a node lacks something that the bundle of a code requires."""
        return bool(code.bundle) and any(self._unfit([code]).get(code, {}).values())

    def _unfit(self, codes: Iterable[Code]) -> Mapping[Code, Mapping[NodeId, str | None]]:
        codes, nodes = list(codes), [node.node_id for node in self.nodes]
        elsewhere = {node.node_id: _NO_FILES for node in self.nodes if node.machine}
        in_files = {code: elsewhere for code in codes if elsewhere and not code.bundle}
        return {**self.bundles.unfit(nodes, codes), **in_files} if len(nodes) > 1 else in_files

    def _with_drains(self) -> list[Node]:
        return [replace(node, is_drained=node.is_drained or node.node_id in self.drains) for node in self.nodes]

    def why_alone(self, address: Address, code: Code) -> str | None:
        """Return why an agent gets a process of its own although its class is shared; ``None`` if it does not."""
        if self.quarantine.holds(address, code, self.codes.stamps):
            return self.quarantine.reason(address)
        return self.suspects.why_alone(address)

    async def register(self, code: Code) -> None:
        """Set the code of an agent type: warm hosts are started for it, and agents with pending messages are woken."""
        if self.codes.register(code):
            self.bundles.forget_lacking()
            self.changed.set()
            try:
                pending = await self.with_pending(code.agent_type) if not self.is_waiting else ()
            except ChronicleError:  # the code is registered: nobody reads their inboxes for it again
                self.host_died.set()
                raise
            for address in pending:
                self.requests.add(address, code)

    def loads(self, loaded: Loaded) -> None:
        """Record that a host has loaded a code, which may have been dropped meanwhile."""
        if self.codes.loads(loaded):
            self.host_died.set()

    def config_of(self, agent_type: str) -> str:
        """Return the configuration of a type as canonical JSON."""
        return encode(self.known.config_of(agent_type)).decode()

    async def has_pending(self, address: Address) -> bool:
        """Whether an agent has pending messages."""
        return bool(await self.pending_among([address]))

    async def pending_among(self, addresses: Sequence[Address]) -> list[Address]:
        """Return those of agents that have pending messages, in their order."""
        names = [(address.name, address.tenant) for address in addresses]
        pending = set(await asyncio.to_thread(self._with_pending, "", names))
        return [address for address in addresses if address in pending]

    async def with_pending(self, agent_type: str) -> list[Address]:
        """Return the agents of a type that have pending messages."""
        return await asyncio.to_thread(self._with_pending, f"{agent_type}/")

    async def unattended(self) -> list[Address]:
        """Return the agents with pending messages that nobody may have told of them.

        Those are left out that are being woken, whose wake failed, or whose code is not known.
        """
        return [
            address
            for address in await asyncio.to_thread(self._with_pending)
            if self.codes.get(address.agent_type) is not None
            and self.requests.get(address) is None
            and not self.retries.has(address)
        ]

    def _with_pending(self, prefix: str = "", among: Sequence[tuple[str, str]] | None = None) -> list[Address]:
        """Return the agents that have pending messages; arguments as of `InboxRecords.sessions_with_pending`."""
        found = []
        for session in self.store.sessions_with_pending(prefix, among):
            with contextlib.suppress(InvalidAddress):  # it is none of an agent
                found.append(Address.of(session))
        return found
