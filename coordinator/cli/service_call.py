"""Calls to a home's running service, for operations that only it can do while an agent is awake."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from chronicle.cli_kit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from coordinator.service.client import ServiceClient

__all__ = ["call_service"]

_T = TypeVar("_T")


def call_service(
    home: Path, doing: str, call: Callable[[ServiceClient], Awaitable[_T]], *, lines: bool = True
) -> _T | None:
    """Return the answer of a home's service; ``None`` if no service runs. None is started.

    Args:
        doing: the progress message during the call.
        lines: print that message as a line when stderr is not a terminal.

    Raises:
        ServiceRefused: the service refused the call.
        ServiceError: the service ended, or does not answer.
    """
    import asyncio  # noqa: PLC0415  slow to import, and --help needs none

    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.service.connecting import attach  # noqa: PLC0415

    async def ask() -> _T | None:
        with Progress(lines=lines) as progress:
            async with attach(Home(home).open()) as client:
                if client is None:
                    return None
                progress.show(doing)
                return await call(client)

    return asyncio.run(ask())
