"""Addresses of Ray clusters: which are accepted, and whether one answers. It imports no Ray, which takes a second."""

from __future__ import annotations

import contextlib
import re
import socket
from typing import Final

from chronicle.errors import InvalidInput, Unavailable

__all__ = ["check_address"]

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")
_ANSWER_S: Final = 5.0
"""Timeout of the connection: Ray itself tries for minutes."""


def check_address(address: str) -> None:
    """Check that something answers at the address of a Ray cluster.

    Ray's ``auto`` is none: it may be any cluster on this machine, also that of another home's service.

    Raises:
        InvalidInput: it is not such an address.
        Unavailable: nothing answers.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or int(found["port"]) > 0xFFFF:
        raise InvalidInput(
            f"{address!r} is not the address of a Ray cluster: give HOST:PORT, as `ray start --head` says it"
        )
    host = found["host"].strip("[]")
    try:
        with contextlib.closing(socket.create_connection((host, int(found["port"])), _ANSWER_S)):
            pass
    except OSError as error:
        raise Unavailable(
            f"no Ray cluster answers at {address} ({error.strerror or error}); start one with `ray start --head`, or "
            "give another address with --ray or RAY_ADDRESS"
        ) from error
