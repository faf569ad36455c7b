"""Damage of those parts of a home that belong to no agent: its packs, its id, and its records beside the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.homes.opening import open_records

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
    packs = verifier.check_other_packs()
    return {**({"blobs": packs} if packs is not None else {}), **open_records(home).damage()}
