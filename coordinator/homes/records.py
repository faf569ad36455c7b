"""The port to the records of a home beside its journal.

They are *truth*, as the journal is: a home on another database keeps them there. What belongs to a machine stays in its
files and is none of them: where its gateway listens (`coordinator.gateway_record`), the text of its user's key
(`coordinator.access.local_key`), the classes of the service that runs (`coordinator.registry.known_agents`), and a
node's layers and caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coordinator.access.quotas import Quota
    from coordinator.access.records import KeyRecords, QuotaRecords
    from coordinator.documents import Documents
    from coordinator.homes.collection_lease import CollectionLease
    from coordinator.homes.generation import GenerationWatch
    from coordinator.homes.node_roots import NodeRoots
    from coordinator.models.records import CallLog, CallRecords

__all__ = ["HomeRecords", "Part", "ServiceClaim"]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a home, and its format."""

    name: str
    place: str
    """Where it is, without a password."""
    format: int
    newer: int | None = None
    """The format that this version would migrate it to; ``None`` if it leaves it as it is."""
    is_additive: bool = False
    """Whether versions that know the older format only can use the newer one, too."""


class ServiceClaim(Protocol):
    """The claim of the service of one directory on a home; it ends with the process, too."""

    def hold(self) -> None:
        """Make sure that the claim is held; called from time to time.

        Raises:
            HomeError: the service of another directory has it.
            Unavailable: it is not known.
        """
        ...

    def release(self) -> None:
        """End the claim."""
        ...


class HomeRecords(Protocol):
    """The records of a home. Making it opens nothing; each part is opened when it is asked for.

    Opening a part raises `StorageRefused` if it cannot be read or written, `Corrupt` if it is damaged, and
    `UnsupportedFormat` if a newer version wrote it.
    """

    def keys(self) -> KeyRecords:
        """Open the keys and quotas, created if there are none yet; the caller closes them."""
        ...

    def quotas(self) -> QuotaRecords | None:
        """Open the quotas; ``None`` if neither keys nor quotas were ever kept. Cheap then: each message asks."""
        ...

    def set_quotas(self, quotas: Mapping[str, Quota]) -> None:
        """Replace the quotas of all tenants, which are in force at once; for none, nothing is created."""
        ...

    def calls(self) -> CallRecords:
        """Open the records of calls, created if there are none yet; the caller closes them."""
        ...

    def call_log(self) -> CallLog:
        """Return the records of calls for reading."""
        ...

    def documents(self) -> Documents:
        """Return the documents: the quarantine, the drained nodes, the profiles of models."""
        ...

    def service_claim(self) -> ServiceClaim:
        """Return the claim of the service of this home's directory, not held yet.

        A home in files has one directory, whose lock says enough; another one has one service for all directories.
        """
        ...

    def generation_watch(self) -> GenerationWatch:
        """Return what notices that the database may have gone back; a home in files has one generation.

        It also reports, once, that the clocks of this machine and the database differ.
        """
        ...

    def collection_lease(self) -> CollectionLease:
        """Return the lease of the collections of garbage in this home, not held yet."""
        ...

    def node_roots(self) -> NodeRoots:
        """Return the roots for gc that the directories of this home have published; in files there is one directory."""
        ...

    def damage(self) -> dict[str, str]:
        """Return the damage by the name of what is damaged; nothing is written.

        It is the id of the home that is damaged if none of its keys was made with it.
        """
        ...

    def parts(self) -> list[Part]:
        """Return the formats of what there is; nothing is written.

        Raises:
            UnsupportedFormat: a newer version wrote it.
        """
        ...

    def upgrade(self, may_migrate: Callable[[], bool]) -> None:
        """Migrate what has an older format.

        Args:
            may_migrate: called before a migration that older versions do not work with afterwards.
        """
        ...

    def receive(self, source: HomeRecords) -> None:
        """Replace keys, quotas and calls by those that another home has now, durably; its writers go on.

        Raises:
            StorageRefused, Unavailable: they cannot be read, or these not be written.
        """
        ...
