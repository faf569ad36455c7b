"""The files that an ``AGENT[@TURN]`` argument names."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordinator.cli.lookup import split_moment
from coordinator.cli.stores import opened_blobs, read_journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coordinator.operations.files import Files

__all__ = ["opened_files"]


@contextmanager
def opened_files(home: Path, moment: str) -> Iterator[Files]:
    """Open the files of ``AGENT[@TURN]`` for reading."""
    from coordinator.operations.files import files_at  # noqa: PLC0415  slow to import, and --help needs none
    from podium.address import Address  # noqa: PLC0415

    with opened_blobs(home) as blobs:
        with read_journal(home) as store:
            session, turn = split_moment(store, moment)
            files = files_at(store, blobs, Address.of(session), turn)
        yield files
