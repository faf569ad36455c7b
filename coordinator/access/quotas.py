"""Quotas of tenants: what is allowed, and what is refused.

A message of a client is refused where it is admitted, and a read where it begins, which one process of a home does,
what else it stores before that is stored, and a question of an agent where it asks. What an agent has sent with `tell`
cannot be refused, as its turn was committed: if it would make an agent beyond `Quota.agents`, it is held in the outbox
(`coordinator.access.outbox_quotas`). Whatever wakes an agent, the coordinator keeps those beyond `Quota.awake_agents`
asleep (`coordinator.fleet.wakes.quotas`).
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from chronicle.errors import Corrupt, NotFound
from chronicle.journal.records import ROW_BYTES, SessionFilter
from chronicle.workspace.history.oplog import read_root
from podium.address import Address
from podium.agent_record import agent_exists, count_agents, read_agent
from podium.artifacts.artifacts import list_artifacts
from podium.errors import PodiumError, UnknownAgent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from chronicle.blobs.port import BlobStore
    from chronicle.clock import Clock
    from chronicle.journal.port import JournalStore

__all__ = ["MessageQuotaExceeded", "Quota", "QuotaExceeded", "Quotas", "too_many_agents", "too_many_awake"]

_log: Final = structlog.stdlib.get_logger("coordinator.access.quotas")
_MINUTE_S: Final = 60.0
_AWAKE_S: Final = 1.0
"""Seconds for which a count of awake agents is used again; those that were admitted meanwhile are added."""
_BYTES_S: Final = 60.0
"""Seconds for which a sum of bytes is used again at least: it looks at each record, and at agents that had turns."""
_BYTES_SHARE: Final = 20
"""A sum is used again for so many times what it took, so that sums take 5 % of a core at most."""
_AWAKE_WITHIN_S: Final = 10.0
"""Seconds within which an agent that was admitted has a session, and is awake."""


class QuotaExceeded(PodiumError):
    """A tenant has as much of something as it may have."""


class MessageQuotaExceeded(QuotaExceeded):
    """A tenant has sent as many messages in the last minute as it may send.

    Attributes:
        retry_after_s: seconds until it may send the next one.
    """

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Quota:
    """Quota of a tenant; ``None`` for no limit."""

    agents: int | None = None
    """Agents, sleeping ones included."""
    awake_agents: int | None = None
    """Agents that are awake at the same time."""
    bytes: int | None = None
    """Bytes of the files of its agents, as of their last turns, of artifacts, bundles and responses, and of the
    records of its agents and sessions. What clients store is added at once; the sum of all is up to a minute old."""
    messages_per_minute: int | None = None
    """Messages of clients that are admitted, and reads, in any 60 seconds."""


@dataclass(slots=True)
class _Tenant:
    """Known use of a tenant."""

    messages: deque[float] = field(default_factory=deque)
    """Times of the admissions of the last minute."""
    admitted: dict[Address, float] = field(default_factory=dict)
    """When a message for the agent was admitted, for agents whose lease may not be there yet."""
    made: dict[Address, float] = field(default_factory=dict)
    """Likewise for those that did not exist then."""
    awake: frozenset[Address] = frozenset()
    awake_s: float = -math.inf
    bytes: int = 0
    bytes_until_s: float = -math.inf
    """When the sum is made again."""
    contents: dict[Address, tuple[str, int]] = field(default_factory=dict)
    """The bytes of each agent's files and artifacts, with the hash of the head at which they were summed."""

    def drop_expired(self, now_s: float) -> None:
        """Drop the entries of agents that have a session, and are awake, by now."""
        self.admitted = {agent: at for agent, at in self.admitted.items() if now_s - at < _AWAKE_WITHIN_S}
        self.made = {agent: at for agent, at in self.made.items() if now_s - at < _AWAKE_WITHIN_S}


class Quotas:
    """Checks the quotas of tenants. Safe to share between threads.

    Args:
        limits: returns the quotas by tenant as they are now.
        store: the journal.
        blobs: where files and large payloads are.
        clock: the time.
    """

    def __init__(
        self, limits: Callable[[], Mapping[str, Quota]], store: JournalStore, blobs: BlobStore, clock: Clock
    ) -> None:
        self._limits = limits
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self._guard = threading.Lock()
        self._tenants: defaultdict[str, _Tenant] = defaultdict(_Tenant)

    def limited(self) -> Mapping[str, Quota]:
        """Return the quotas as they are now by tenant: messages for agents of these are to be checked."""
        return self._limits()

    def check(self, address: Address, size_bytes: int) -> None:
        """Admit a message for an agent, and count it.

        Args:
            size_bytes: of its body.

        Raises:
            MessageQuotaExceeded: its tenant has sent too many in the last minute.
            QuotaExceeded: its tenant would have too many agents, too many awake ones, or too many bytes.
        """
        self._admit(address, size_bytes + ROW_BYTES)

    def check_ask(self, address: Address) -> None:
        """Let an agent ask another one.

        Raises:
            QuotaExceeded: the tenant would have too many agents, or too many awake ones.
        """
        self._admit(address, None)

    def check_read(self, address: Address) -> None:
        """Let a client read from an agent that exists, and count it as a message.

        Raises:
            MessageQuotaExceeded: its tenant has sent too many messages in the last minute.
            QuotaExceeded: the tenant would have too many awake agents.
        """
        quota = self._limits().get(address.tenant)
        if quota is None:
            return
        with self._guard:
            used, now_s = self._tenants[address.tenant], self._clock.monotonic_s()
            used.drop_expired(now_s)
            self._check_messages(address.tenant, quota, used, now_s)
            self._check_awake(address, quota, used, now_s)
            used.messages.append(now_s)
            used.admitted[address] = now_s

    def check_fork(self, address: Address) -> None:
        """Let a fork be made.

        Args:
            address: of the new agent.

        Raises:
            QuotaExceeded: its tenant would have too many agents, or has too many bytes.
        """
        quota = self._limits().get(address.tenant)
        if quota is None:
            return
        with self._guard:
            used = self._tenants[address.tenant]
            _ = self._check_agents(address, quota, used)
            self._check_bytes(address.tenant, quota, used)

    def check_upload(self, address: Address, size_bytes: int) -> None:
        """Let a file be uploaded, and count it.

        Raises:
            QuotaExceeded: the agent's tenant has too many bytes, or would have with the file.
        """
        self.check_content(address.tenant, size_bytes, "a file")

    def check_content(self, tenant: str, size_bytes: int, what: str = "a content") -> None:
        """Let a content of a tenant be stored, and count it.

        Args:
            what: it is, for the error.

        Raises:
            QuotaExceeded: the tenant has too many bytes, or would have with the content.
        """
        quota = self._limits().get(tenant)
        if quota is None or quota.bytes is None:
            return
        with self._guard:
            self._add_bytes(tenant, quota, self._tenants[tenant], size_bytes, what)

    def check_record(self, tenant: str, size_bytes: int) -> None:
        """Let a record of a tenant be stored, such as an event, and count it.

        Args:
            size_bytes: of its payload.

        Raises:
            QuotaExceeded: the tenant has too many bytes, or would have with the record.
        """
        self.check_content(tenant, size_bytes + ROW_BYTES, "a record")

    def _admit(self, address: Address, size_bytes: int | None) -> None:
        """Admit a message of a client, of so many bytes; ``None`` for a question of an agent, which has no limit."""
        quota = self._limits().get(address.tenant)
        if quota is None:
            return
        with self._guard:
            used, now_s = self._tenants[address.tenant], self._clock.monotonic_s()
            used.drop_expired(now_s)
            if size_bytes is not None:
                self._check_messages(address.tenant, quota, used, now_s)
            is_new = self._check_agents(address, quota, used)
            self._check_awake(address, quota, used, now_s)
            if size_bytes is not None:
                self._add_bytes(address.tenant, quota, used, size_bytes, "a message")
                used.messages.append(now_s)
            used.admitted[address] = now_s
            if is_new:
                used.made[address] = now_s

    def _check_messages(self, tenant: str, quota: Quota, used: _Tenant, now_s: float) -> None:
        while used.messages and now_s - used.messages[0] >= _MINUTE_S:
            used.messages.popleft()
        if quota.messages_per_minute is not None and len(used.messages) >= quota.messages_per_minute:
            wait_s = math.ceil(used.messages[0] - now_s + _MINUTE_S if used.messages else _MINUTE_S)
            raise MessageQuotaExceeded(
                f"the tenant {tenant} may send {quota.messages_per_minute} messages a minute; try again in {wait_s} s",
                wait_s,
            )

    def _check_agents(self, address: Address, quota: Quota, used: _Tenant) -> bool:
        """Return whether the agent is a new one, as far as there is a limit."""
        if quota.agents is None or agent_exists(self._store, address):
            return False
        there = count_agents(self._store, address.tenant)
        if there + len(used.made) >= quota.agents:
            for made in [made for made in used.made if agent_exists(self._store, made)]:  # they are counted
                del used.made[made]
            if there + len(used.made.keys() - {address}) >= quota.agents:
                raise QuotaExceeded(f"{too_many_agents(address.tenant, quota.agents)}; delete one first")
        return True

    def _check_awake(self, address: Address, quota: Quota, used: _Tenant, now_s: float) -> None:
        if quota.awake_agents is None:
            return
        if now_s - used.awake_s >= _AWAKE_S:
            used.awake, used.awake_s = self._awake(address.tenant), now_s
        awake = used.awake | used.admitted.keys()
        if address not in awake and len(awake) >= quota.awake_agents:
            raise QuotaExceeded(
                f"{too_many_awake(address.tenant, quota.awake_agents)}; try again when one sleeps, or passivate one"
            )

    def _add_bytes(self, tenant: str, quota: Quota, used: _Tenant, size_bytes: int, what: str) -> None:
        self._check_bytes(tenant, quota, used, size_bytes)
        if quota.bytes is not None and used.bytes + size_bytes > quota.bytes:
            raise QuotaExceeded(
                f"the files and records of the tenant {tenant} have {used.bytes} bytes, and may have "
                f"{quota.bytes}: {what} of {size_bytes} bytes is too large"
            )
        used.bytes += size_bytes

    def _check_bytes(self, tenant: str, quota: Quota, used: _Tenant, more_bytes: int = 0) -> None:
        if quota.bytes is None:
            return
        began_s = self._clock.monotonic_s()
        if began_s >= used.bytes_until_s:
            used.bytes = self._bytes(tenant, used)
            if used.bytes + more_bytes >= quota.bytes:  # agents may have less without a turn: artifacts are erased
                used.contents.clear()
                used.bytes = self._bytes(tenant, used)
            now_s = self._clock.monotonic_s()
            used.bytes_until_s = now_s + max(_BYTES_S, _BYTES_SHARE * (now_s - began_s))
        if used.bytes >= quota.bytes:
            raise QuotaExceeded(
                f"the files and records of the tenant {tenant} have {used.bytes} bytes, and may have {quota.bytes}; "
                "delete some, and try again in a minute; earlier versions of files count until their agent is deleted"
            )

    def _awake(self, tenant: str) -> frozenset[Address]:
        only = SessionFilter(with_slash=True, leased_at_ms=self._clock.now_ms())
        return frozenset(Address.of(each.session) for each in self._store.summaries(namespace=tenant, only=only))

    def _bytes(self, tenant: str, used: _Tenant) -> int:
        """Return the sum of a tenant's bytes; reads those agents that had a turn since the last one."""
        before, used.contents = used.contents, {}
        for each in self._store.summaries(namespace=tenant, only=SessionFilter(with_slash=True)):
            address, head = Address.of(each.session), each.head.hash
            known = before.get(address)
            found = known[1] if known is not None and known[0] == head else self._bytes_of(address)
            used.contents[address] = head, found
        contents = sum(size_bytes for _, size_bytes in used.contents.values())
        records = self._store.record_usage(tenant)
        sizes = self._blobs.sizes(set(records.payloads))
        payloads = sum(sizes.get(payload, 0) for payload in records.payloads)
        return contents + self._store.object_bytes(tenant) + records.size_bytes + payloads

    def _bytes_of(self, address: Address) -> int:
        """Return the bytes of an agent's files, with their earlier versions, and artifacts."""
        try:
            tree = read_agent(self._store, self._blobs, address).tree
            artifacts = sum(found.content.size for found in list_artifacts(self._store, self._blobs, address))
            if tree is None:
                return artifacts
            root = read_root(self._blobs, tree.oplog_id)
            return artifacts + max(root.usage.bytes, root.kept_bytes)
        except UnknownAgent:  # it never started, or was deleted meanwhile
            return 0
        except (Corrupt, NotFound) as error:  # a damaged agent must not stop the others of its tenant
            _log.warning("bytes_not_counted", agent_id=str(address), error=str(error))
            return 0


def too_many_awake(tenant: str, limit: int) -> str:
    """Return why a tenant's agent is not woken."""
    return f"the tenant {tenant} may have {limit} agents awake, and has them"


def too_many_agents(tenant: str, limit: int) -> str:
    """Return why no agent is made for a tenant."""
    return f"the tenant {tenant} may have {limit} agents, and has them"
