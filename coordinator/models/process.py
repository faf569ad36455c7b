"""The process of the model gateway: ``python -m coordinator.models.process --home DIR --listener FD``.

The service starts it (`coordinator.models.supervisor`). It ends when its standard input does. It has the keys in its
environment, and is the only process that imports vendors' libraries: at its start those of the home's profiles, so that
no call waits for them, and that of a later profile when it is first called.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import socket
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.errors import Corrupt
from chronicle.system.secrets_held import keep_secrets
from coordinator.environment import variables
from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.logs import log_to
from coordinator.models.config_file import ConfigFile
from coordinator.models.gateway import ModelGateway
from coordinator.models.providers import Providers, import_libraries
from coordinator.models.server import ModelServer
from coordinator.telemetry.tracing import Tracing
from podium.tasks import beside

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.models.records import CallRecords

__all__ = ["main"]


def main() -> int:
    """Serve until the standard input ends, or a signal; return 0."""
    keep_secrets()
    parser = argparse.ArgumentParser(prog="python -m coordinator.models.process", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home directory")
    parser.add_argument("--listener", type=int, required=True, help="file descriptor of the listening socket")
    arguments = parser.parse_args()
    log_to(arguments.home / "logs" / "models.log")
    records = open_records(Home(arguments.home))
    with closing(records.calls()) as calls:
        config = ConfigFile(records.documents())
        asyncio.run(_serve(config, socket.socket(fileno=arguments.listener), calls, variables()))
    return 0


async def _serve(
    config: ConfigFile, listener: socket.socket, calls: CallRecords, environment: Mapping[str, str]
) -> None:
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    tracing = Tracing("models")
    providers = Providers(environment)
    gateway = ModelGateway(config, providers, calls, tracing.tracer, random.Random())
    calls.give_up_running()
    with suppress(Corrupt):  # told to those who call
        await import_libraries(config().profiles.values())
    service = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(service), sys.stdin)
    try:
        with beside(_until_end(service, ending), "watch-service"):
            async with ModelServer(gateway).listening(listener):
                await ending.wait()
    finally:
        await providers.aclose()
        await tracing.flush()


async def _until_end(service: asyncio.StreamReader, ending: asyncio.Event) -> None:
    """Set the event when the service has closed the pipe."""
    while await service.read(1024):
        pass
    ending.set()


if __name__ == "__main__":
    sys.exit(main())
