"""`StoreLink`: how a process reaches the store process of its node, and as whom."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.blobs.remote import remote_url
from chronicle.control.calls import Calls

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COORDINATOR", "StoreAccess", "StoreLink", "is_manager", "manager_of", "token_of"]

COORDINATOR: Final = "coordinator"
"""The caller that acts for all agents; every other name is that of a host, or of a node's manager."""
_MANAGER: Final = "node-"


def manager_of(node: str) -> str:
    """Return the name by which the manager of a node calls."""
    return f"{_MANAGER}{node}"


def is_manager(caller: str) -> bool:
    """Whether a caller's name is that of a node's manager."""
    return caller.startswith(_MANAGER)


def token_of(secret: str, caller: str) -> str:
    """Return the proof that a process may call itself so: the HMAC-SHA256 of the name, hex digits."""
    return hmac.new(secret.encode(), caller.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class StoreLink:
    """A caller of a store process."""

    socket: str
    """The path of the process's socket."""
    caller: str
    token: str

    @property
    def hello(self) -> Mapping[str, str]:
        """The beginning of a connection."""
        return {"caller": self.caller, "token": self.token}

    def calls(self) -> Calls:
        """Return calls of the process; nothing is connected yet."""
        return Calls(Path(self.socket), self.hello)

    @property
    def blobs_url(self) -> str:
        """The URL of the blob store, for mount servers, too."""
        return remote_url(Path(self.socket), self.hello)


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """What gives links: who has it may call itself by any name."""

    socket: str
    secret: str

    def link(self, caller: str) -> StoreLink:
        """Return the link of a caller."""
        return StoreLink(self.socket, caller, token_of(self.secret, caller))
