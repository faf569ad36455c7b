"""``podium node``: a further machine of a home whose agents run on a Ray cluster."""

from __future__ import annotations

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

    from coordinator.fleet.machines import Machine  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home  # noqa: PLC0415
    from coordinator.host.node.process_marks import take_mark_off  # noqa: PLC0415
    from coordinator.logs import log_into  # noqa: PLC0415
    from coordinator.service.node import serve_node  # noqa: PLC0415
    from coordinator.settings import read_settings  # noqa: PLC0415

    place = create_home(Home(home), *urls_of(None, blobs_url, journal_url))
    take_mark_off()
    log_into(place.logs / "machine.log")

    def tell(machine: Machine) -> None:
        say(f"the Ray node of {machine.hostname} may have agents, which the service reaches at {machine.door.address}")
        if json:
            door = {"host": machine.door.host, "port": machine.door.port}
            write_json({"hostname": machine.hostname, "door": door, "pid": os.getpid()})

    asyncio.run(serve_node(place, read_settings(), tell))
    say("ended: this machine has no agents")
