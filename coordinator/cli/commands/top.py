"""``podium top``: what the agents of a home do now."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import command
from coordinator.cli.target import Target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from coordinator.client.async_client import AsyncPodium
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["top"]


@command
def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Show the sums since the start once, and exit.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="Time between two looks.", show_default=True)
    ] = 2.0,
    target: Target,
) -> None:
    """Watch the agents of a home: turns, wakes and what waits, by agent type, until Ctrl-C.

    Rates and times are those of the last interval, with --once those since the service was started. With --json each
    look is one line.
    """
    from coordinator.cli.views.top import once_shown, watched  # noqa: PLC0415  slow to import, and --help needs none

    async def show(podium: AsyncPodium) -> None:
        looks = _looks(podium, None if once else interval_s)
        if target.json:
            async for figures in looks:
                write_json(figures)
        elif once or not sys.stdout.isatty():
            async for figures in looks:
                once_shown(figures)
        else:
            await watched(looks)

    target.run(show)


async def _looks(podium: AsyncPodium, interval_s: float | None) -> AsyncIterator[dict[str, Any]]:
    """Yield the figures of a home: once since its start, or again and again, of the time between two looks."""
    import asyncio  # noqa: PLC0415

    from coordinator.telemetry.figures import difference, figures_of  # noqa: PLC0415

    before: Mapping[Series, Value] | None = None
    before_s = 0.0
    while True:
        now, now_s = await podium.metrics(), time.monotonic()
        if interval_s is None:
            yield figures_of(now, None)
            return
        yield figures_of(now, None) if before is None else figures_of(difference(now, before), now_s - before_s)
        before, before_s = now, now_s
        await asyncio.sleep(interval_s)
