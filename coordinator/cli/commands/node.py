"""``podium node``: a further machine of a home whose agents run on a Ray cluster."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import (
    DEFAULT_HOME,
    BlobsUrlOption,
    HomeOption,
    JournalUrlOption,
    JsonOption,
    command,
    urls_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coordinator.service.node import NodeHealth
    from coordinator.settings import Settings

__all__ = ["node"]


@command
def node(
    *,
    home: HomeOption = DEFAULT_HOME,
    blobs_url: BlobsUrlOption = "",
    journal_url: JournalUrlOption = "",
    json: JsonOption = False,
) -> None:
    """Let agents run on this machine's Ray node, for a service on another machine, until Ctrl-C.

    It has the credentials of the home's database and bucket, which Ray has not, and listens at `PODIUM_SERVICE_LISTEN`.
    At its end the agents move to other nodes after their running turns, for at most `PODIUM_STOP_TIMEOUT_S`. With
    --json one object on stdout when agents may come.
    """
    import asyncio  # noqa: PLC0415  all of these are slow to import
    import os  # noqa: PLC0415

    from coordinator.cli.starting import waited  # noqa: PLC0415
    from coordinator.fleet.nodes.machines import Machine  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home  # noqa: PLC0415
    from coordinator.host.node.process_marks import take_mark_off  # noqa: PLC0415
    from coordinator.log_echo import echoed  # noqa: PLC0415
    from coordinator.logs import log_into  # noqa: PLC0415
    from coordinator.service.node import NodeHealth, serve_node  # noqa: PLC0415
    from coordinator.settings import read_settings  # noqa: PLC0415

    settings, place, health = read_settings(), Home(home), NodeHealth()

    def tell(machine: Machine) -> None:
        say(f"the Ray node of {machine.hostname} may have agents, which the service reaches at {machine.door.address}")
        if json:
            door = {"host": machine.door.host, "port": machine.door.port}
            write_json({"hostname": machine.hostname, "door": door, "pid": os.getpid()})

    with _answering(settings, health):
        waited(lambda: create_home(place, *urls_of(None, blobs_url, journal_url)), settings.start_wait_s)
        take_mark_off()
        log_into(place.logs / "machine.log")
        with echoed(place.logs) if settings.log_stderr else nullcontext():
            asyncio.run(serve_node(place, settings, tell, health))
    say("ended: this machine has no agents")


@contextmanager
def _answering(settings: Settings, health: NodeHealth) -> Iterator[None]:
    """Answer probes while the context lasts, if there are to be some.

    Raises:
        InvalidInput: the address cannot be listened at.
    """
    from chronicle.errors import InvalidInput  # noqa: PLC0415  as above
    from coordinator.gateway.process.listener import listen  # noqa: PLC0415
    from coordinator.health import answering  # noqa: PLC0415

    if not settings.health_listen:
        yield
        return
    host, _, port = settings.health_listen.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidInput(
            f"PODIUM_HEALTH_LISTEN={settings.health_listen} cannot be used: write HOST:PORT, such as 0.0.0.0:8703"
        )
    with (
        listen(host.strip("[]"), int(port)) as listener,
        answering(listener, is_live=health.is_live, is_ready=health.is_ready),
    ):
        yield
