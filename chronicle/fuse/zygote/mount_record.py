"""What the zygote knows of one of its mounts, from the order to its end."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.fuse.control import Connection
    from chronicle.fuse.server.server import MountRequest
    from chronicle.fuse.zygote.processes import ServerProcess

__all__ = ["MountRecord", "State"]

_RESTARTS: Final = 5
_RESTART_WINDOW_S: Final = 30.0


class State(Enum):
    """Where a mount is in its life; drawn in `chronicle.fuse.zygote.lifecycle`."""

    STARTING = "starting"
    UP = "up"
    ENDING = "ending"
    FAILED = "failed"
    """It was up and was given up: nobody serves it, and whoever uses its path gets errors until it is unmounted."""


@dataclass(slots=True)
class MountRecord:
    """One mount and the server that serves it at the moment."""

    request: MountRequest
    listener: socket.socket
    socket_path: Path
    state: State = State.STARTING
    process: ServerProcess | None = None
    """Of its server; ``None`` before the first and after it was given up."""
    base: list[str] | None = None
    """Of the layer when it last came up; ``None`` if it never was."""
    recovered: list[str] | None = None
    restarts: deque[float] = field(default_factory=deque)
    """When it was mounted again after a crash, monotonic seconds."""
    owner_pidfd: int = -1
    waiting: list[Connection] = field(default_factory=list)
    """Who gets an answer when it is up."""
    leaving: list[Connection] = field(default_factory=list)
    """Who gets an answer when it is gone."""
    then: list[Callable[[], None]] = field(default_factory=list)
    """What to do when it is gone: mount what replaces it, the first come first."""
    failure: dict[str, Any] | None = None
    """Why it could not be opened or mounted."""

    def may_restart(self) -> bool:
        """Note that its server failed; say whether to try another one."""
        now = time.monotonic()
        while self.restarts and self.restarts[0] < now - _RESTART_WINDOW_S:
            self.restarts.popleft()
        self.restarts.append(now)
        return len(self.restarts) <= _RESTARTS

    def hang_up(self) -> None:
        """Close the socket on which hosts reach its servers: whoever calls from now on is refused."""
        self.listener.close()
        self.socket_path.unlink(missing_ok=True)

    def describe(self) -> dict[str, object]:
        """Return what the zygote's ``list`` says of it."""
        spec = self.request.spec
        return {
            "mountpoint": os.fspath(self.request.mountpoint),
            "control": os.fspath(self.socket_path),
            "workspace_id": spec.workspace_id,
            "epoch": spec.epoch,
            "state": self.state.value,
            "pid": 0 if self.process is None else self.process.pid,
            "restarts": len(self.restarts),
        }

    def opened(self) -> dict[str, object]:
        """Return what whoever waited for it is told."""
        return {"control": os.fspath(self.socket_path), "base": self.base, "recovered": self.recovered}
