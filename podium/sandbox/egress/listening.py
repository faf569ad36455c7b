"""How a command reaches its proxy: by a socket that listens in its network, and that the proxy has.

The command's network has a loopback interface and no way out. Before the command a few lines of Python run in its
place: they open the socket there, and hand it to this process through a descriptor that they close then. So there is no
process in the sandbox that could be made to forward anything else, and no socket of this process in its files.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from podium.errors import CommandNotStarted
from podium.sandbox.egress.proxy import Proxy
from podium.tasks import joined_beside

if TYPE_CHECKING:
    from podium.sandbox.egress.allow_list import Proxied
    from podium.sandbox.egress.outside import Outside
    from podium.sandbox.egress.proxy import OnDenied

__all__ = ["CHANNEL_AT", "PROXY_VARIABLES", "interpreter_paths", "served", "with_listener"]

CHANNEL_AT: Final = 4
"""The descriptor at which the socket is handed over."""
_PORT: Final = 3128
_URL: Final = f"http://127.0.0.1:{_PORT}"
PROXY_VARIABLES: Final[Mapping[str, str]] = {
    **{name: _URL for each in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY") for name in (each, each.lower())},
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}
"""By which programs know of it; what does not use them reaches nothing."""
_BEFORE: Final = f"""if 1:
    import os, signal, socket, sys
    with socket.create_server(("127.0.0.1", {_PORT})) as listener, socket.socket(fileno={CHANNEL_AT}) as channel:
        socket.send_fds(channel, [b"\\n"], [listener.fileno()])
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(each, signal.SIG_DFL)
    try:
        os.execv(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"{{sys.argv[1]}}: {{error.strerror}}")
"""


def with_listener(argv: Sequence[str]) -> list[str]:
    """Return the command line that opens the socket and then becomes a command; its program is a path."""
    return [os.path.realpath(sys.executable), "-I", "-S", "-c", _BEFORE, *argv]


def interpreter_paths(system: Iterable[str]) -> list[str]:
    """Return what it has to read for that, beside directories of the system."""
    needed = (os.path.realpath(sys.base_prefix), os.path.dirname(os.path.realpath(sys.executable)))  # noqa: PTH120
    return [each for each in needed if not any(os.path.commonpath((each, above)) == above for above in system)]


@asynccontextmanager
async def served(network: Proxied, outside: Outside, on_denied: OnDenied) -> AsyncIterator[socket.socket]:
    """Serve what comes from a socket that is handed over; give the end of the connection for that.

    Raises:
        CommandNotStarted: when the block is over, none has come.
    """
    mine, its = socket.socketpair()
    with mine, its:
        mine.setblocking(False)
        listener = asyncio.get_running_loop().create_future()
        async with joined_beside(_serve(mine, listener, Proxy(network, outside, on_denied)), "proxy of a sandbox"):
            yield its
        if not listener.done() and not _come_since(mine):
            raise CommandNotStarted("the command was not started: its network has not been connected with the proxy")


async def _serve(mine: socket.socket, came: asyncio.Future[None], proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(mine, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(mine)
    _, descriptors, _, _ = socket.recv_fds(mine, 1, 1)
    if descriptors:
        with socket.socket(fileno=descriptors[0]) as listener:
            listener.setblocking(False)
            came.set_result(None)
            await proxy.serve(listener)


def _come_since(mine: socket.socket) -> bool:
    """Whether the socket has come, from a command that was over before anything was done with it."""
    try:
        _, descriptors, _, _ = socket.recv_fds(mine, 1, 1)
    except BlockingIOError:
        return False
    for each in descriptors:
        os.close(each)
    return bool(descriptors)
