"""Waiting for what the start of a process needs of others, as in a cluster where all of them start at once."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

from chronicle.errors import Unavailable
from coordinator.cli.terminal import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["waited"]

_POLL_S: Final = 1.0
"""Pause between two tries."""


def waited(prepare: Callable[[], object], wait_s: float) -> None:
    """Call a function until what it needs can be reached; say once of each reason that it is waited for.

    A signal to end raises `KeyboardInterrupt` meanwhile: the first process of a container ignores it otherwise.

    Args:
        prepare: raises `Unavailable` while something is away.
        wait_s: time after which that is raised.

    Raises:
        Exception: what ``prepare`` raises besides, at once.
    """
    until_s = time.monotonic() + wait_s
    said = ""
    with _interrupted_by_sigterm():
        while True:
            try:
                prepare()
            except Unavailable as error:
                if time.monotonic() > until_s:
                    raise
                if str(error) != said:
                    warn(f"waiting, for at most {max(0.0, until_s - time.monotonic()):.0f} s: {error}")
                said = str(error)
                time.sleep(_POLL_S)
            else:
                if said:
                    warn("what was waited for is there")
                return


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
