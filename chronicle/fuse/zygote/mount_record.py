"""The zygote's record of one mount, from the order to its end, and the resources that the mount holds."""

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

    from chronicle.control.connections import Connection
    from chronicle.control.messages import Message
    from chronicle.fuse.server.request import MountRequest
    from chronicle.fuse.zygote.processes import ServerProcess

__all__ = ["MountRecord", "State"]

_RESTARTS: Final = 5
_RESTART_WINDOW_S: Final = 30.0


class State(Enum):
    """A mount's place in its life cycle, which `chronicle.fuse.zygote.mount_manager` draws."""

    STARTING = "starting"
    UP = "up"
    ENDING = "ending"
    FAILED = "failed"
    """It was up and has failed for good: no server runs, and its path answers errors until it is unmounted."""


@dataclass(slots=True)
class MountRecord:
    """One mount and its current server."""

    request: MountRequest
    listener: socket.socket
    """The mount's control socket; every server of the mount inherits it."""
    socket_path: Path
    state: State = State.STARTING
    process: ServerProcess | None = None
    """``None`` before the first server and after the mount has failed."""
    base: list[str] | None = None
    """The layer's base when it last came up; ``None`` if it never did."""
    recovered: list[str] | None = None
    restarts: deque[float] = field(default_factory=deque)
    """Times of restarts after a crash, monotonic seconds."""
    owner_pidfd: int = -1
    awaiting_up: list[Connection] = field(default_factory=list)
    """Clients that get an answer when it is up."""
    awaiting_end: list[Connection] = field(default_factory=list)
    """Clients that get an answer when it is gone."""
    successors: list[Callable[[], None]] = field(default_factory=list)
    """Mounts that replace it, to be made when it is gone, the first come first."""
    failure: Message | None = None
    """The error of an opening or mounting that failed."""

    def may_restart(self) -> bool:
        """Record a failure of its server; say whether another one is to be started."""
        now = time.monotonic()
        while self.restarts and self.restarts[0] < now - _RESTART_WINDOW_S:
            self.restarts.popleft()
        self.restarts.append(now)
        return len(self.restarts) <= _RESTARTS

    def close_socket(self) -> None:
        """Remove the control socket: further connections are refused."""
        self.listener.close()
        self.socket_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Release what the record holds: the control socket and the owner's pidfd, which must be unwatched."""
        self.close_socket()
        if self.owner_pidfd >= 0:
            os.close(self.owner_pidfd)
            self.owner_pidfd = -1

    def forget_client(self, client: Connection) -> None:
        """Do not answer a client that is gone."""
        self.awaiting_up = [other for other in self.awaiting_up if other is not client]
        self.awaiting_end = [other for other in self.awaiting_end if other is not client]

    def describe(self) -> dict[str, object]:
        """Return the mount's entry in the answer to ``list``."""
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

    def opened(self) -> dict[str, Any]:
        """Return the answer to ``mount``."""
        return {"control": os.fspath(self.socket_path), "base": self.base, "recovered": self.recovered}
