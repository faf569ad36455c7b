"""Asking a home's service for what only it can do while an agent is awake; none is started for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from chronicle.cli_kit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from coordinator.service.client import ServiceClient

__all__ = ["ask_service"]

_T = TypeVar("_T")


def ask_service(home: Path, doing: str, call: Callable[[ServiceClient], Awaitable[_T]]) -> _T | None:
    """Return what a home's service answers; ``None`` if no service runs.

    Args:
        doing: what is waited for, in a few words; shown meanwhile.

    Raises:
        ServiceRefused: it will not.
        ServiceError: it ended, or does not answer.
    """
    import asyncio  # noqa: PLC0415  slow to import, and --help needs none

    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.service.client import attach  # noqa: PLC0415

    async def ask() -> _T | None:
        with Progress() as progress:
            async with attach(Home(home).open()) as client:
                if client is None:
                    return None
                progress.show(doing)
                return await call(client)

    return asyncio.run(ask())
