"""The file ``models.json`` of a home: the profiles that `podium up` found in the project, for the home's processes.

It names variables and files of keys, and has no key. The model gateway reads it again when it has changed.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, StorageRefused
from chronicle.system.atomic_files import replacing, sync_directory
from coordinator.models.profiles import ModelsConfig

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FILE", "ConfigFile", "read_config", "store_config"]

FILE: Final = "models.json"
_FORMAT: Final = 1


def store_config(home: Path, config: ModelsConfig) -> None:
    """Replace the profiles of a home; they are in force at once, but for variables of keys that are new.

    Raises:
        StorageRefused: the file cannot be written.
    """
    path = home / FILE
    if not config.profiles and not config.budgets and not path.exists():
        return
    try:
        with replacing(path) as new:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"format": _FORMAT, **config.to_json()}, file)
                file.flush()
                os.fsync(file.fileno())
        sync_directory(home)
    except OSError as error:
        raise StorageRefused(f"{path} cannot be written: {error.strerror}") from error


def read_config(home: Path) -> ModelsConfig:
    """Return the profiles of a home; none if nothing was stored.

    Raises:
        Corrupt: the file is damaged, or a newer version wrote it.
    """
    path = home / FILE
    try:
        kept = json.loads(path.read_bytes())
        if kept["format"] != _FORMAT:
            raise Corrupt(f"{path} has format {kept['format']}, and this code reads {_FORMAT}: upgrade podium")
        return ModelsConfig.from_json(kept)
    except FileNotFoundError:
        return ModelsConfig()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{path} cannot be read ({error}); podium up and podium reload write it anew") from error


class ConfigFile:
    """The profiles of a home as they are now.

    Args:
        home: the home's directory.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stamp: tuple[int, int] | None = None
        self._config = ModelsConfig()

    def __call__(self) -> ModelsConfig:
        """Return the profiles; the same object while they do not change.

        Raises:
            Corrupt: as `read_config`.
        """
        try:
            found = (self._home / FILE).stat()
            stamp = (found.st_ino, found.st_mtime_ns)
        except FileNotFoundError:
            stamp = None
        if stamp != self._stamp:
            self._config, self._stamp = read_config(self._home), stamp
        return self._config
