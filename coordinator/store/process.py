"""The store process: ``python -m coordinator.store.process --home DIR --inbox-limit N --listener FD``.

The service starts it (`coordinator.store.supervisor`), with the credentials in its environment, and the secret by
which callers prove their names as the first line of its standard input; it ends when that does. No other process of
its user can read its memory or its environment.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from chronicle.clock import SystemClock
from chronicle.errors import ChronicleError
from chronicle.ids import IdSource
from chronicle.system.secrets_held import keep_secrets
from coordinator.access.quotas import Quotas
from coordinator.access.stored_quotas import LatestQuotas, StoredQuotas
from coordinator.home import Home
from coordinator.homes.generation import least_epoch
from coordinator.homes.node_roots import PUBLISH_EVERY_S, publish_roots
from coordinator.homes.opening import open_records
from coordinator.logs import log_to
from coordinator.store.server import StoreServer
from podium.tasks import beside

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["main"]

_log = structlog.stdlib.get_logger("coordinator.store")


def main() -> int:
    """Serve until the standard input ends, or a signal; return 0."""
    keep_secrets()
    parser = argparse.ArgumentParser(prog="python -m coordinator.store.process", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home directory")
    parser.add_argument("--inbox-limit", type=int, required=True, help="messages that may be pending for one agent")
    parser.add_argument("--listener", type=int, required=True, help="file descriptor of the listening socket")
    parser.add_argument("--reads-layers", action="store_true", help="publish what the layers of the home refer to")
    arguments = parser.parse_args()
    home = Home(arguments.home)
    log_to(home.logs / "store.log")
    secret = _first_line(sys.stdin.fileno())
    clock = SystemClock()
    with ExitStack() as stack:
        records = open_records(home)
        generation = records.generation_watch()
        journal = stack.enter_context(closing(home.journal(create=False)))
        blobs = stack.enter_context(closing(home.blobs()))
        limits = LatestQuotas(stack.enter_context(closing(StoredQuotas(records.quotas))))
        roots = records.node_roots()
        server = StoreServer(
            journal,
            blobs,
            records.documents(),
            roots,
            Quotas(limits, journal, blobs, clock),
            IdSource(),
            secret,
            arguments.inbox_limit,
            lambda: least_epoch(generation.check()),
        )
        listener = socket.socket(fileno=arguments.listener)
        publish = (lambda: publish_roots(roots, home.path)) if arguments.reads_layers else None
        asyncio.run(_serve(server, listener, publish))
    return 0


def _first_line(descriptor: int) -> str:
    """Return the first line of a pipe, of which nothing else is read: its end is awaited by the event loop."""
    line = bytearray()
    while (byte := os.read(descriptor, 1)) not in {b"", b"\n"}:
        line += byte
    return line.decode()


async def _serve(server: StoreServer, listener: socket.socket, publish: Callable[[], None] | None) -> None:
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    owner = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(owner), sys.stdin)
    publishing = beside(_publish(publish), "publish-roots") if publish is not None else nullcontext()
    with beside(_until_end(owner, ending), "watch-owner"), publishing:
        async with server.listening(listener):
            await ending.wait()


async def _publish(publish: Callable[[], None]) -> None:
    """Publish the roots of this machine's layers from time to time; those of the last time count until then."""
    while True:
        try:
            await asyncio.to_thread(publish)
        except (ChronicleError, OSError) as error:
            _log.warning("roots_not_published", error=str(error))
        await asyncio.sleep(PUBLISH_EVERY_S)


async def _until_end(owner: asyncio.StreamReader, ending: asyncio.Event) -> None:
    """Set the event when the owner has closed the pipe."""
    while await owner.read(1024):
        pass
    ending.set()


if __name__ == "__main__":
    sys.exit(main())
