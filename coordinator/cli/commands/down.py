"""``podium down``: ending a home's gateway and its service."""

from __future__ import annotations

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command

__all__ = ["down"]


@command
def down(
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """End the gateway and the service of a home in order.

    No message is accepted any more. Running turns end, or are taken back after `PODIUM_STOP_TIMEOUT_S` without counting
    an attempt: the next service handles their messages. Returns when the processes have ended.
    """
    import asyncio  # noqa: PLC0415  slow to import, and --help needs none

    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from coordinator.gateway.process.ending import end_all  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415

    with Progress() as progress:
        ended = asyncio.run(end_all(Home(home).open(), progress.show))
    if json:
        write_json({"gateway": ended.gateway, "service": ended.service})
    elif not (ended.gateway or ended.service):
        say("nothing runs on this home")
    else:
        parts = [name for name, was in (("gateway", ended.gateway), ("service", ended.service)) if was]
        say(f"ended: {', '.join(parts)}")
