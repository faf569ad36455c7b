"""The stores of a host: its own connections to files of this machine, or those of the store process of its node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs.opening import open_blobs
from chronicle.journal.committer import DirectCommitter, GroupCommitter
from chronicle.journal.opening import open_journal
from coordinator.access.quotas import Quotas
from coordinator.access.stored_quotas import StoredQuotas
from coordinator.home import Home
from coordinator.homes.opening import open_records
from podium.blocking import at_once, in_threads
from podium.messages.asking import StoreAsker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.blobs.port import BlobStore
    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from coordinator.host.host_config import HostConfig
    from podium.address import Address
    from podium.blocking import BlockingRunner
    from podium.turn.journal.ledger import Committer
    from podium.turn.ports import Asker

__all__ = ["HostStores", "in_store_threads", "open_stores"]

_STORE_THREADS: Final = 8
"""Threads that call the store process for all agents of a host."""
_ASKING_THREADS: Final = 4
"""Threads that send the questions of all agents, and look for the answers: each call takes some microseconds to
milliseconds. Agents may block those of ``asyncio.to_thread``."""


@dataclass(frozen=True, slots=True)
class HostStores:
    """The stores of a host."""

    journal: JournalStore
    blobs: BlobStore
    asker: Asker
    run: BlockingRunner
    """Makes calls of the journal from the event loop: in threads, if they may wait for a network. A loop that waited
    would be taken for one that an agent's code blocks, or that hangs."""

    def committer(self) -> Committer:
        """Return a committer for an agent that has the process for itself."""
        return DirectCommitter(self.journal) if self.run is at_once else GroupCommitter(self.journal)


def in_store_threads() -> BlockingRunner:
    """Return what calls the store process for the agents of a host."""
    return in_threads(ThreadPoolExecutor(_STORE_THREADS, "store"))


def open_stores(
    config: HostConfig, clock: Clock, ids: IdSource, wake: Callable[[Address], Awaitable[None]]
) -> HostStores:
    """Open the stores of a host.

    Args:
        wake: has an agent that was asked check its inbox; it may be lost.
    """
    blobs = open_blobs(config.blobs_url)
    if config.store is not None:
        from chronicle.journal.remote import remote_journal  # noqa: PLC0415  of homes on a server only
        from coordinator.store.client import RemoteAsker  # noqa: PLC0415

        return HostStores(
            remote_journal(config.store.calls()), blobs, RemoteAsker(config.store, wake), in_store_threads()
        )
    journal = open_journal(config.journal, watched=True)
    limits = StoredQuotas(open_records(Home(Path(config.home))).quotas)
    asking = in_threads(ThreadPoolExecutor(_ASKING_THREADS, "asking"))
    check = Quotas(limits, journal, blobs, clock).check_ask
    asker = StoreAsker(journal, blobs, ids, asking, wake, config.inbox_limit, check)
    return HostStores(journal, blobs, asker, at_once)
