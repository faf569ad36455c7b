"""The stores of a host: its own connections to files of this machine, or those of the store process of its node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs.opening import open_blobs
from chronicle.journal.opening import open_journal
from coordinator.access.quotas import Quotas
from coordinator.access.stored_quotas import StoredQuotas
from coordinator.home import Home
from coordinator.homes.opening import open_records
from podium.blocking import in_threads
from podium.messages.asking import StoreAsker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from chronicle.blobs.port import BlobStore
    from chronicle.clock import Clock
    from chronicle.ids import IdSource
    from chronicle.journal.port import JournalStore
    from coordinator.host.host_config import HostConfig
    from podium.address import Address
    from podium.turn.ports import Asker

__all__ = ["HostStores", "open_stores"]

_ASKING_THREADS: Final = 4
"""Threads that send the questions of all agents, and look for the answers: each call takes some microseconds to
milliseconds. Agents may block those of ``asyncio.to_thread``."""


@dataclass(frozen=True, slots=True)
class HostStores:
    """The stores of a host."""

    journal: JournalStore
    blobs: BlobStore
    asker: Asker


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

        return HostStores(remote_journal(config.store.calls()), blobs, RemoteAsker(config.store, wake))
    journal = open_journal(config.journal, watched=True)
    limits = StoredQuotas(open_records(Home(Path(config.home))).quotas)
    asking = in_threads(ThreadPoolExecutor(_ASKING_THREADS, "asking"))
    check = Quotas(limits, journal, blobs, clock).check_ask
    return HostStores(journal, blobs, StoreAsker(journal, blobs, ids, asking, wake, config.inbox_limit, check))
