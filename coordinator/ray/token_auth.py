"""Ray's token authentication: a cluster without it runs the code of all who reach it.

Ray has it since 2.52, from its environment: ``RAY_AUTH_MODE=token``, and the token in ``RAY_AUTH_TOKEN``, in the file
that ``RAY_AUTH_TOKEN_PATH`` names, or in ``~/.ray/auth_token``. Left to itself, Ray tries for 20 s to connect with a
wrong token and then says nothing of it, and a process without a token aborts.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray._raylet
from ray.exceptions import AuthenticationError

from chronicle.errors import Unavailable
from coordinator.environment import add_variables, variables, withheld, withhold

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_token", "forget_token", "refuse_open_cluster"]

_MODE: Final = "RAY_AUTH_MODE"
_TOKEN: Final = "RAY_AUTH_TOKEN"
_PATH: Final = "RAY_AUTH_TOKEN_PATH"
_DEFAULT: Final = Path(".ray") / "auth_token"
"""Below the user's home directory."""
_LOOPBACK: Final = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Unless it is 0, Ray joins by the address that other machines reach, also where it is given the loopback's."""
_GIVE: Final = f"in {_TOKEN}, or in a file that {_PATH} names"


def check_token(address: str) -> bool:
    """Check that a cluster takes the token of this process; return whether it authenticates at all.

    Raises:
        Unavailable: it does not, or this process has none.
    """
    with withheld(_MODE.__eq__):
        add_variables({_MODE: "disabled"})
        is_open = _answers(address)
        withhold([_MODE])
    _read_mode()
    if is_open:
        return False
    given = variables()
    if given.get(_MODE, "").lower() != "token" and not (_MODE not in given and _has_token(given)):
        raise Unavailable(f"the Ray cluster at {address} wants a token: set {_MODE}=token, and give its token {_GIVE}")
    if not _has_token(given):
        raise Unavailable(f"{_MODE} is token, and there is no token: give that of the Ray cluster {_GIVE}")
    add_variables({_MODE: "token"})
    _read_mode()
    if not _answers(address):
        raise Unavailable(f"the Ray cluster at {address} refuses this token: give that of the cluster {_GIVE}")
    return True


def refuse_open_cluster(address: str, nodes: Iterable[str]) -> None:
    """Refuse a cluster without authentication whose nodes listen at more than the loopback of their machine.

    Args:
        address: the cluster's.
        nodes: the addresses of its nodes.

    Raises:
        Unavailable: it is one.
    """
    if not all(ipaddress.ip_address(node).is_loopback for node in nodes):
        raise Unavailable(
            f"the Ray cluster at {address} has no token authentication, so that all who reach it can run code: start "
            f"its nodes with {_MODE}=token and a token {_GIVE}, and podium with the same; or let them listen at the "
            f"loopback only: ray start --node-ip-address 127.0.0.1, and {_LOOPBACK}=0 for podium"
        )


def forget_token() -> None:
    """Remove the token from this process's environment, for code and processes that do not need it.

    Ray has read it by now. It stays in its memory.
    """
    withhold([_TOKEN, _PATH])


def _has_token(given: dict[str, str]) -> bool:
    if given.get(_TOKEN):
        return True
    file = Path(given[_PATH]) if given.get(_PATH) else Path(given.get("HOME", "")) / _DEFAULT
    try:
        return bool(file.read_text().strip())
    except (OSError, ValueError):
        return False


def _answers(address: str) -> bool:
    """Whether a cluster answers a caller of the current mode."""
    _read_mode()
    client: Any = ray._raylet.GcsClient  # type: ignore[attr-defined]  # noqa: SLF001  Ray has no other way
    try:
        client(address=address)
    except AuthenticationError:
        return False
    return True


def _read_mode() -> None:
    """Have Ray read its mode from the environment again."""
    config: Any = ray._raylet.Config  # type: ignore[attr-defined]  # noqa: SLF001  as above
    config.initialize("")
