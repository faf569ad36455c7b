"""Damage of those files of a home that belong to no agent: its id, its packs, its keys, and the records of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.access.key_store import FILE as KEYS_FILE
from coordinator.access.key_store import damage_of_keys
from coordinator.models.record_store import FILE as RECORDS_FILE
from coordinator.models.record_store import damage_of_records
from podium.errors import HomeError

if TYPE_CHECKING:
    from coordinator.home import Home
    from coordinator.verification import Verifier

__all__ = ["damaged_files"]


def damaged_files(home: Home, verifier: Verifier) -> dict[str, str]:
    """Return the damage by the name of the file; of packs by ``blobs``.

    Args:
        home: the home.
        verifier: has checked its agents and objects.

    Raises:
        Unavailable: a store could not be read.
    """
    found = {}
    if (packs := verifier.check_other_packs()) is not None:
        found["blobs"] = packs
    if (home.path / "id").exists() or (home.path / KEYS_FILE).exists():  # else the next service makes an id
        try:
            found |= damage_of_keys(home.path, home.id)
        except HomeError as error:
            found["id"] = str(error)
    if (records := damage_of_records(home.path)) is not None:
        found[RECORDS_FILE] = records
    return found
