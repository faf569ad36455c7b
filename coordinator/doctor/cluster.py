"""Checks of the processes of a home, and of the network between them: Ray, service, gateway, other addresses."""

from __future__ import annotations

import asyncio
import socket
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from coordinator.client.async_client import AsyncPodium
from coordinator.client.errors import PermissionDenied
from coordinator.doctor.finding import failed, good, skipped, warning
from coordinator.gateway.process.detached import is_ready
from coordinator.gateway_record import read_record
from coordinator.homes.opening import open_records
from coordinator.service.connecting import attach
from coordinator.service.door import published_door

if TYPE_CHECKING:
    from coordinator.doctor.finding import Finding, Subject
    from coordinator.fleet.facts import NodeFacts

__all__ = ["check_gateway", "check_network", "check_ray", "check_service"]

_CONNECT_S: Final = 5.0
"""Timeout of a connection: what a network policy drops says nothing."""
_SERVICE_S: Final = 30.0
"""Timeout for a service that is starting."""


def check_ray(subject: Subject) -> Finding:
    """Check that the Ray cluster can be joined: it answers, takes the token, and has these versions."""
    if not subject.ray:
        return good(f"podium starts Ray {version('ray')} itself")
    from coordinator.ray.examining import check_cluster  # noqa: PLC0415  importing Ray takes 1.5 s

    authenticates = check_cluster(subject.ray)
    who = "takes the token of this process" if authenticates else "is reached from this machine only, without a token"
    return good(f"the cluster at {subject.ray} has Ray {version('ray')}, and {who}")


def check_service(subject: Subject) -> Finding:
    """Ask the service of the home for its nodes, on whichever machine it is."""
    if not subject.home.exists:
        return skipped("no home yet, and so no service")
    return asyncio.run(_check_service(subject))


async def _check_service(subject: Subject) -> Finding:
    async with attach(subject.home, _SERVICE_S) as client:
        nodes = await client.nodes() if client is not None else None
    if nodes is not None:
        return _of_nodes(nodes)
    door = published_door(open_records(subject.home).documents()) if subject.home.is_shared else None
    if door is None:
        return skipped("no service runs: podium up starts one")
    return failed(
        f"the service of this home does not answer at {door.address}",
        "start it (podium up) where it ran; if it runs there, let this machine reach that address",
    )


def _of_nodes(nodes: list[NodeFacts]) -> Finding:
    problems = [f"{node['node']}: {node['problem']}" for node in nodes if node["problem"] is not None]
    if problems:
        return failed(f"the service runs, and has nodes that are not ready: {'; '.join(problems)}")
    return good(f"the service runs, of this version of podium as its nodes: {len(nodes)} ready")


def check_gateway(subject: Subject) -> Finding:
    """Ask a gateway whether its home can be used, and whether it takes the key."""
    record = read_record(subject.home) if subject.home.exists else None
    url = subject.url or (record.url if record is not None else "")
    if not url:
        return skipped("no gateway runs on this machine, and none is named (PODIUM_URL)")
    if not is_ready(url):
        return failed(
            f"{url}/readyz does not answer that the home can be used",
            "check the URL, that podium up runs there, and its log, which says what is away",
        )
    if not (subject.url and subject.key):
        return good(f"{url} is ready; no key was given to try (PODIUM_KEY)" if subject.url else f"{url} is ready")
    return asyncio.run(_check_key(url, subject.key))


async def _check_key(url: str, key: str) -> Finding:
    async with AsyncPodium(url=url, key=key) as podium:
        try:
            await podium.pages().agents(limit=1)
        except PermissionDenied:
            return warning(
                f"{url} is ready and knows the key, which may not list agents",
                "podium keys create NAME --scope read makes one that may",
            )
    return good(f"{url} is ready, and takes the key")


def check_network(subject: Subject) -> Finding:
    """Connect to what has to be reached, and to what must not be."""
    if not (subject.reaches or subject.misses):
        return skipped("no address was given to try (--reaches, --misses)")
    missed = [f"{address} ({why})" for address in subject.reaches if (why := _refusal(address)) is not None]
    reached = [address for address in subject.misses if _refusal(address) is None]
    if missed:
        return failed(
            f"cannot be reached from here: {', '.join(missed)}",
            "let network policies and firewalls pass it, and check that something listens there",
        )
    if reached:
        return failed(
            f"can be reached from here, and must not be: {', '.join(reached)}",
            "have network policies enforced: many plugins of Kubernetes ignore them",
        )
    return good(
        "; ".join([*(f"{each} is reached" for each in subject.reaches), *(f"{each} is not" for each in subject.misses)])
    )


def _refusal(address: str) -> str | None:
    """Return why an address cannot be connected to; ``None`` if it can."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
