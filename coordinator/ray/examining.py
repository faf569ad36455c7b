"""What a Ray cluster is, for a process that does not join it."""

from __future__ import annotations

import socket
from typing import Any

import ray._raylet
from ray._common.usage import usage_lib
from ray._private.utils import check_version_info

from coordinator.cluster_address import check_address
from coordinator.ray.cluster import refusal_of_versions
from coordinator.ray.token_auth import check_token, refuse_open_cluster

__all__ = ["check_cluster"]


def check_cluster(address: str) -> bool:
    """Check that this process could join a cluster; return whether it authenticates callers.

    A cluster that does not is accepted at the loopback alone; which of its nodes listen elsewhere, only a driver knows.

    Raises:
        InvalidInput: it is not an address.
        Unavailable: no cluster answers there, or one of another version of Ray or Python, or it has no authentication,
            or another token.
    """
    check_address(address)
    authenticates = check_token(address)
    if not authenticates:
        host = address.rpartition(":")[0].strip("[]")
        refuse_open_cluster(address, [str(socket.getaddrinfo(host, None)[0][4][0])])
    client: Any = ray._raylet.GcsClient  # type: ignore[attr-defined]  # noqa: SLF001  Ray has no other way
    try:
        check_version_info(usage_lib.get_cluster_metadata(client(address=address)), "this process")
    except RuntimeError as error:
        if (refusal := refusal_of_versions(address, str(error))) is None:
            raise
        raise refusal from error
    return authenticates
