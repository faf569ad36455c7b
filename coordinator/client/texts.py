"""Names of agents and files, as a program writes them, checked."""

from __future__ import annotations

from pathlib import PurePosixPath

from coordinator.client.errors import InvalidRequest
from podium.address import Address
from podium.errors import InvalidAddress

__all__ = ["address_of", "clean_path"]


def address_of(agent: str) -> Address:
    """Return an agent's address.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        return Address.parse(agent)
    except InvalidAddress as error:
        raise InvalidRequest(str(error), code="invalid_address", param="agent") from error


def clean_path(path: str) -> str:
    """Return a path in the form that workspaces use.

    Raises:
        InvalidRequest: it is empty, absolute, or contains ``..``.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise InvalidRequest(
            f"{path!r} does not name a file in a workspace; give its path from the workspace's root",
            code="invalid_path",
            param="path",
        )
    return "/".join(parts)
