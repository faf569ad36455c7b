"""The checks, in their order, and what comes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.errors import ChronicleError
from coordinator.doctor.cluster import check_gateway, check_network, check_ray, check_service
from coordinator.doctor.finding import failed
from coordinator.doctor.machine import check_mount, check_owners, check_versions
from coordinator.doctor.stores import check_bucket, check_clocks, check_journal
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from coordinator.doctor.finding import Finding, Subject

__all__ = ["CHECKS", "examine"]

CHECKS: Final[dict[str, Callable[[Subject], Finding]]] = {
    "versions": check_versions,
    "owners": check_owners,
    "mount": check_mount,
    "journal": check_journal,
    "bucket": check_bucket,
    "clocks": check_clocks,
    "ray": check_ray,
    "service": check_service,
    "gateway": check_gateway,
    "network": check_network,
}


def examine(subject: Subject, only: Collection[str] = ()) -> Iterator[tuple[str, Finding]]:
    """Yield the name and the finding of each check.

    An error of podium or of the operating system is a finding; another one is a bug, and raised.

    Args:
        only: names of checks; all if empty.
    """
    for name, check in CHECKS.items():
        if only and name not in only:
            continue
        try:
            yield name, check(subject)
        except (ChronicleError, PodiumError, OSError) as error:
            yield name, failed(str(error))
