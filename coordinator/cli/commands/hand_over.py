"""``podium hand-over``: having another service serve the home."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chronicle.cli_kit.terminal import say, write_json
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command, urls_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.documents import Documents

__all__ = ["hand_over"]

_POLL_S: Final = 0.5


@command
def hand_over(
    name: Annotated[str, typer.Argument(metavar="NAME", help="PODIUM_SERVICE_NAME there, or the machine's hostname.")],
    *,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait; the order stays.")
    ] = 600.0,
    order: Annotated[
        str, typer.Option("--order", metavar="ID", help="Name of this order: not repeated after a later order.")
    ] = "",
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Have the service of a name serve the home, which stands by.

    podium up --standby does that. The service before it admits no more, and ends its turns. Returns when they have
    ended. Harmless if repeated.
    """
    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.fleet.services.handover import give_order  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home, open_records  # noqa: PLC0415
    from podium.errors import HomeError  # noqa: PLC0415

    place = create_home(Home(home), *urls_of(None, "", ""))
    if not place.is_shared:
        raise HomeError(f"the home {place.path} is on this machine only, and has one service")
    documents = open_records(place).documents()
    give_order(documents, name, order)
    with Progress() as progress:
        _wait(documents, name, timeout, progress.show)
    if json:
        write_json({"service": name})
    else:
        say(f"{name} serves the home, and the turns of the service before it have ended")


def _wait(documents: Documents, name: str, timeout_s: float, on_progress: Callable[[str], None]) -> None:
    """Wait until a service serves, and the one before it has no turns left.

    Raises:
        TimeoutError: that is not so in time.
        HomeError: another service is ordered meanwhile.
    """
    from coordinator.fleet.services.handover import Freshness, MemberState, draining, member, ordered  # noqa: PLC0415
    from podium.errors import HomeError  # noqa: PLC0415

    serves, drains, ends_s = Freshness(is_seen=False), Freshness(is_seen=True), time.monotonic() + timeout_s
    while True:
        if (to := ordered(documents)) != name:
            raise HomeError(f"{to} is ordered to serve the home now, instead of {name}")
        found, left = member(documents, name), draining(documents)
        is_served = serves.holds(found.told_ms if found and found.state is MemberState.SERVING else None)
        if is_served and not drains.holds(left):
            return
        if not is_served:
            missing = f"no service of the name {name} has told of itself"
            stage = f"{name} is {found.state or 'of a later version'}" if found else missing
        else:
            stage = f"{left[0] if left else name} ends its turns"
        on_progress(stage)
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{stage}, after {timeout_s:g} s; the order stays")
        time.sleep(_POLL_S)
