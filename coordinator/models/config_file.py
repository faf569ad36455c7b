"""The document ``models.json`` of a home: the profiles that `podium up` found in the project, for the home's processes.

It names variables and files of keys, and has no key. The model gateway reads it again when it has changed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from chronicle.errors import Corrupt, StorageRefused
from coordinator.documents import MODELS
from coordinator.models.profiles import ModelsConfig

if TYPE_CHECKING:
    from coordinator.documents import Documents

__all__ = ["ConfigFile", "read_config", "store_config"]

_FORMAT: Final = 1


def store_config(documents: Documents, config: ModelsConfig) -> None:
    """Replace the profiles of a home; they are in force at once, but for variables of keys that are new.

    Raises:
        StorageRefused: the document cannot be written.
    """
    if config.profiles or config.budgets or documents.stamp(MODELS) is not None:
        documents.write(MODELS, json.dumps({"format": _FORMAT, **config.to_json()}).encode())


def read_config(documents: Documents) -> ModelsConfig:
    """Return the profiles of a home; none if nothing was stored.

    Raises:
        Corrupt: the document is damaged, or a newer version wrote it.
    """
    place = documents.place(MODELS)
    try:
        data = documents.read(MODELS)
        if data is None:
            return ModelsConfig()
        kept = json.loads(data)
        if kept["format"] != _FORMAT:
            raise Corrupt(f"{place} has format {kept['format']}, and this code reads {_FORMAT}: upgrade podium")
        return ModelsConfig.from_json(kept)
    except (StorageRefused, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{place} cannot be read ({error}); podium up and podium reload write it anew") from error


class ConfigFile:
    """The profiles of a home as they are now. Safe to share between threads; the documents may be in a database server.

    Args:
        documents: those of the home.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._latest: tuple[object, ModelsConfig] = (None, ModelsConfig())

    def __call__(self) -> ModelsConfig:
        """Return the profiles; the same object while they do not change.

        Raises:
            Corrupt: as `read_config`.
        """
        stamp = self._documents.stamp(MODELS)
        latest = self._latest
        if stamp != latest[0]:
            latest = self._latest = (stamp, read_config(self._documents))
        return latest[1]
