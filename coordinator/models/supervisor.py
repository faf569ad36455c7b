"""`ModelProcess`: the service's side of the model gateway, whose process runs from the first call on.

In a home with profiles it starts with the service: the first call does not wait for it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from coordinator.channel import pack
from coordinator.models.client import ModelClient
from coordinator.models.config_file import read_config
from coordinator.socket_process import SocketProcess
from coordinator.telemetry.snapshots import from_wire
from podium.models.codec import error_to_json
from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from coordinator.documents import Documents
    from coordinator.home import Home
    from coordinator.telemetry.recorder import Series, Value

__all__ = ["ModelProcess"]

_METRICS_S: Final = 2.0


class ModelProcess:
    """The model gateway of a home, while its context lasts. The caller is the home's service.

    Args:
        home: the home; its run directory exists.
        variables: the environment of the process; it has the keys.
    """

    def __init__(self, home: Home, documents: Documents, variables: Mapping[str, str]) -> None:
        self._path = home.models_socket
        self._process = SocketProcess(
            "model gateway",
            self._path,
            ("coordinator.models.process", "--home", str(home.path)),
            home.logs / "models.log",
            variables,
            lambda why: pack({"error": error_to_json(ModelError(why, "unavailable"))}),
            at_once=bool(read_config(documents).profiles),
        )
        self._metrics: dict[Series, Value] = {}

    async def __aenter__(self) -> Self:
        """Listen, and start the process if the home has profiles."""
        await self._process.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the process: running calls fail with an error."""
        await self._process.__aexit__(kind, error, trace)

    async def metrics(self) -> dict[Series, Value]:
        """Return what the process measured; the last that is known, if it does not run."""
        if self._process.runs:
            with suppress(ModelError, TimeoutError):
                async with asyncio.timeout(_METRICS_S):
                    self._metrics = from_wire(await ModelClient(self._path).metrics())
        return self._metrics
