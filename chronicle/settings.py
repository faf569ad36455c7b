"""Settings of chronicle: the one module of the package that reads environment variables, besides typer.

They are read where a store or a layer is opened, and passed down from there. `chronicle.cli.options` and
`chronicle.cli.mounts` name variables (``envvar=``) that the help of a command shows. ``docs/settings.md`` lists all of
them for users.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "BACKUP_WINDOW_S",
    "CACHE_BYTES",
    "STORE_PATIENCE_S",
    "STORE_VARIABLE",
    "TRANSPORT_VARIABLE",
    "WARM_BYTES",
    "Settings",
    "environment_with",
    "read_settings",
]

STORE_VARIABLE: Final = "CHRONICLE_STORE"
"""The default of the command's option ``--store``."""
TRANSPORT_VARIABLE: Final = "CHRONICLE_TRANSPORT"
"""The default of the command's option ``--transport``."""

CACHE_BYTES: Final = 10 * 1024**3
"""The working set of many agents; a node's disk has at least ten times as much."""
WARM_BYTES: Final = 256 * 1024 * 1024
"""Of a workspace whose store is on this node: sources and their build, and not the disk twice."""
STORE_PATIENCE_S: Final = 50.0
"""For so long a failing request is retried: a server's restart or failover takes less. A mount server
that is opening its layer may take a minute (`chronicle.fuse.watchdog`), so the default is below that."""
BACKUP_WINDOW_S: Final = 7 * 24 * 3600.0
"""A database that is restored to a moment of the last week finds its blobs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a process."""

    state_dir: Path | None
    """``CHRONICLE_STATE_DIR``: layers with uncommitted changes of stores at URLs. ``None`` for a user without a
    home."""
    cache_dir: Path | None
    """``CHRONICLE_CACHE_DIR``: the cache of stores at URLs; ``None`` as above."""
    cache_bytes: int
    """``CHRONICLE_CACHE_BYTES``: the cache's size limit; 0 for no cache."""
    given_warm_bytes: int | None
    """``CHRONICLE_WARM_BYTES``, if it is set; see `warm_bytes`."""
    store_patience_s: float
    """``CHRONICLE_STORE_PATIENCE_S``: how long a failing request to a store at a URL is retried, seconds."""
    backup_window_s: float
    """``CHRONICLE_BACKUP_WINDOW_S``: how long gc keeps condemned packs of a store at a URL, seconds."""

    def warm_bytes(self, *, is_far: bool) -> int:
        """Return how many bytes of committed files a workspace keeps as plain files beside its store; 0 for none.

        Args:
            is_far: whether the store is beyond a network. The plain files are then the only copy on this node, and
                their default is that of the node's cache.
        """
        if self.given_warm_bytes is not None:
            return self.given_warm_bytes
        return CACHE_BYTES if is_far else WARM_BYTES


def read_settings(environment: Mapping[str, str] | None = None, home: Path | None = None) -> Settings:
    """Read the settings.

    Args:
        environment: by default that of this process.
        home: the user's home directory, by default that of this process's user, if there is one.

    Raises:
        InvalidInput: a variable has a value that cannot be used.
    """
    if environment is None:
        environment, home = os.environ, _home()
    warm_bytes = _bytes(environment, "CHRONICLE_WARM_BYTES", "0 to keep no committed files")
    cache_bytes = _bytes(environment, "CHRONICLE_CACHE_BYTES", "0 for no cache")
    return Settings(
        state_dir=_directory(environment, home, "CHRONICLE_STATE_DIR", "XDG_STATE_HOME", ".local/state", home),
        cache_dir=_directory(environment, home, "CHRONICLE_CACHE_DIR", "XDG_CACHE_HOME", ".cache"),
        cache_bytes=CACHE_BYTES if cache_bytes is None else cache_bytes,
        given_warm_bytes=warm_bytes,
        store_patience_s=_seconds(environment, "CHRONICLE_STORE_PATIENCE_S", STORE_PATIENCE_S),
        backup_window_s=_seconds(environment, "CHRONICLE_BACKUP_WINDOW_S", BACKUP_WINDOW_S),
    )


def environment_with(name: str, value: str) -> dict[str, str]:
    """Return the environment of a child process that has a variable of its own."""
    return {**os.environ, name: value}


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:  # a container's user may have none
        return None


def _directory(
    environment: Mapping[str, str],
    home: Path | None,
    name: str,
    base_name: str,
    base: str,
    relative_to: Path | None = None,
) -> Path | None:
    """Return the directory of a variable; by default ``chronicle`` in that of another variable, or below the home.

    Args:
        relative_to: what relative paths are relative to, by default the working directory.
    """
    if given := environment.get(name):
        path = Path(given)
    elif given_base := environment.get(base_name):
        path = Path(given_base, "chronicle")
    else:
        return home / base / "chronicle" if home is not None else None
    # Only a relative path needs the working directory, which may have been removed.
    return relative_to / path if relative_to is not None else path.absolute()


def _bytes(environment: Mapping[str, str], name: str, zero: str) -> int | None:
    given = environment.get(name)
    if given is None:
        return None
    if not given.isdecimal():
        raise InvalidInput(f"{name} is {given!r}; give a number of bytes, {zero}")
    return int(given)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    given = environment.get(name)
    if given is None:
        return default
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidInput(f"{name} is {given!r}; give a number of seconds, such as {default:g}")
    return seconds
