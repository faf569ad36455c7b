"""`StoreProcess`: the side of the store process that its owner has: the service, or ``podium node``."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from chronicle.control.messages import answer_error, framed
from chronicle.errors import Unavailable
from coordinator.socket_process import SocketProcess
from coordinator.store.links import StoreAccess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.home import Home

__all__ = ["StoreProcess"]


class StoreProcess(SocketProcess):
    """The store process of a home on this node, which runs while its context lasts.

    Args:
        home: the home; its run directory exists.
        variables: the environment of the process; it has the credentials.
        inbox_limit: messages that may be pending for one agent.
        secret: by which callers prove their names, if there are some that have it; by default a new one.
        group: of the user of hosts, if that is another one; then nothing is read in their directories.

    Attributes:
        access: to the process, for its node's actors.
    """

    def __init__(
        self, home: Home, variables: Mapping[str, str], inbox_limit: int, secret: str = "", group: int | None = None
    ) -> None:
        path = home.run_dir / "store.sock"
        self.access = StoreAccess(str(path), secret or secrets.token_hex(32))
        super().__init__(
            "store process",
            path,
            (
                "coordinator.store.process",
                *("--home", str(home.path), "--inbox-limit", str(inbox_limit)),
                *(() if group is not None else ("--reads-layers",)),
            ),
            home.logs / "store.log",
            variables,
            lambda why: framed(answer_error(Unavailable(why))),
            first=f"{self.access.secret}\n".encode(),
            group=group,
            at_once=True,
        )
