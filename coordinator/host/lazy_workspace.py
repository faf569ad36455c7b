"""A workspace that is opened when it is first used: most turns of an agent in a shared host touch no file."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, BinaryIO, Final

from chronicle.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from chronicle.workspace.port import Iteration, TreeRef, Workspace

__all__ = ["LazyWorkspace"]

_OPEN_NOTHING: Final = frozenset({"begin_turn", "seal", "adopt", "rollback", "close"})


class LazyWorkspace:
    """A `chronicle.workspace.port.Workspace`. Its methods may be called from any thread.

    What needs the files opens it: `root`, `history`, `at`, a `move_to` of another tree. Until then it has no changes:
    it seals as its base, and a rollback has nothing to do.

    Args:
        base: the last committed tree.
        turn: the turn that changes belong to.
        open_it: opens the workspace on a base, in a turn; called once at most.
    """

    def __init__(self, base: TreeRef, turn: int, open_it: Callable[[TreeRef, int], Workspace]) -> None:
        self._base = base
        self._turn = turn
        self._open_it = open_it
        self._opened: Workspace | None = None
        self._closed = False
        self._lock = threading.Lock()
        """Held while it is opened or closed."""

    @property
    def is_open(self) -> bool:
        """Whether its files have been used."""
        return self._opened is not None

    def is_instant(self, method: str) -> bool:
        """Whether a method of that name does nothing that blocks now: it is unopened, and the method does not open it.

        While another thread opens it nothing is instant: `close` waits for that.
        """
        return self._opened is None and method in _OPEN_NOTHING and not self._lock.locked()

    @property
    def root(self) -> Path:
        """The directory of its files; opens it.

        Raises:
            ChronicleError: it could not be opened.
        """
        return self._open().root

    @property
    def base(self) -> TreeRef:
        """The last adopted (or opened) tree."""
        return self._opened.base if self._opened is not None else self._base

    def begin_turn(self, turn: int) -> None:
        """See the port."""
        self._turn = turn
        if self._opened is not None:
            self._opened.begin_turn(turn)

    def seal(self) -> TreeRef:
        """See the port; unopened it is its base."""
        return self._opened.seal() if self._opened is not None else self.base

    def adopt(self, ref: TreeRef) -> None:
        """See the port."""
        if self._opened is not None:
            self._opened.adopt(ref)
        else:
            self._base = ref

    def rollback(self) -> None:
        """See the port."""
        if self._opened is not None:
            self._opened.rollback()

    def move_to(self, ref: TreeRef) -> None:
        """See the port; opens it, unless it is its base and unopened."""
        if self._opened is not None or ref != self._base:
            self._open().move_to(ref)

    def history(self, path: str) -> Sequence[Iteration]:
        """See the port; opens it."""
        return self._open().history(path)

    def at(self, path: str, iteration: int) -> BinaryIO:
        """See the port; opens it."""
        return self._open().at(path, iteration)

    def close(self) -> None:
        """See the port; afterwards it is not opened any more: its path may be another activation's."""
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened.close()

    def _open(self) -> Workspace:
        with self._lock:
            if self._opened is None:
                if self._closed:
                    raise Unavailable("the workspace is closed: its activation is over")
                self._opened = self._open_it(self._base, self._turn)
            return self._opened
