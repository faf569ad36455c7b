"""The further machines of a home: what ``podium node`` tells of each, in a document of the home.

Who can read the documents has the credentials of the database, or is the coordinator. The document of a machine has the
secrets of its store process and of its door, which stay the same while it is there: a ``podium node`` that was killed
and started again finds them in it, and so do those who have them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Literal

from chronicle.errors import UnsupportedFormat
from coordinator.door import Door
from coordinator.store.links import StoreAccess

if TYPE_CHECKING:
    from coordinator.documents import Documents

__all__ = ["TELL_S", "Machine", "publish_machine", "published_machine", "withdraw_machine"]

TELL_S: Final = 2.0
"""Interval at which a machine tells of itself."""
_DOCUMENT: Final = "machine-{}.json"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine whose Ray nodes may have agents. Its paths are its own."""

    hostname: str
    podium: str
    """The version of Podium there."""
    door: Door
    """The way to its hosts: target ``host``, with its ``host`` id."""
    store: StoreAccess
    """Its store process."""
    home: str
    """Its directory of the home."""
    home_identity: str
    """`coordinator.home.Home.identity`, of that directory."""
    run_dir: str
    models: str
    """The socket of the model gateway."""
    logs: str
    workspaces: str
    """As of `coordinator.settings.Settings`."""
    presentation: Literal["auto", "fuse", "dir"]
    """As of `coordinator.settings.Settings`."""
    fuse_transport: Literal["raw", "pyfuse3"]
    group: int | None = None
    """The group of `podium node` and of the user of hosts, if that is another one than that of ``podium node``."""
    end_timeout_s: float | None = None
    """Timeout of its end, in which its agents end after their turns; then it is withdrawn. ``None``: it stays."""
    told_ms: int = 0
    """When this was told, by its clock, epoch milliseconds: again and again, every `TELL_S`."""


def published_machine(documents: Documents, hostname: str) -> Machine | None:
    """Return a machine as it was last told; ``None`` if there is none of that name.

    Raises:
        Unavailable: the documents cannot be reached.
        UnsupportedFormat: a podium node of another version has told of it, in another form.
    """
    data = documents.read(_DOCUMENT.format(hostname))
    found = json.loads(data) if data else {}
    if not found:
        return None
    try:
        return Machine(**{**found, "door": Door(**found["door"]), "store": StoreAccess(**found["store"])})
    except (TypeError, KeyError) as error:
        raise UnsupportedFormat(
            f"podium node on {hostname} is of Podium {found.get('podium')}, and this is {version('podium')}: start "
            "both with the same version"
        ) from error


def publish_machine(documents: Documents, machine: Machine) -> None:
    """Tell of a machine, or of what has changed of it; durable on return.

    Raises:
        StorageRefused: it cannot be written.
    """
    documents.write(_DOCUMENT.format(machine.hostname), json.dumps(asdict(machine)).encode())


def withdraw_machine(documents: Documents, hostname: str) -> None:
    """Tell that a machine is none any more; durable on return.

    Raises:
        StorageRefused: it cannot be written.
    """
    documents.write(_DOCUMENT.format(hostname), b"{}")
