"""Which home a client reaches: its arguments, completed from the environment."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.errors import ChronicleError
from coordinator.client.errors import InvalidRequest

if TYPE_CHECKING:
    from coordinator.client.backends.port import Backend
    from coordinator.settings import Settings

__all__ = ["choose_backend"]


def choose_backend(url: str | None, key: str | None, home: Path | str | None, reconnect_s: float | None) -> Backend:
    """Return the backend for a client's arguments, completed from the environment."""
    if home is not None:
        if url:
            raise InvalidRequest("give url or home, not both", code="invalid_url", param="home")
        return _local(home, reconnect_s)
    from coordinator.settings import read_settings  # noqa: PLC0415  slow to import, as are the backends

    settings = read_settings()
    reconnect_s = settings.reconnect_s if reconnect_s is None else reconnect_s
    url = url or settings.url
    if not url:
        return _local(settings.home, reconnect_s)
    from coordinator.client.backends.http_backend import HttpBackend  # noqa: PLC0415

    find_key = partial(_default_key, url, settings) if key is None else lambda: key
    return HttpBackend(url, find_key, reconnect_s)


def _local(home: Path | str, reconnect_s: float | None) -> Backend:
    from coordinator.client.backends.local_backend import LocalBackend  # noqa: PLC0415

    return LocalBackend(Path(home), reconnect_s)


def _default_key(url: str, settings: Settings) -> str:
    """Return the key of the environment, else that of a gateway of this user; empty if there is none."""
    from coordinator.client.backends.local_gateway import key_for_local_gateway  # noqa: PLC0415  not every client needs it
    from coordinator.registry.project_file import home_of_project  # noqa: PLC0415

    given = settings.key.get_secret_value()
    if given:
        return given
    homes = [settings.home]
    with suppress(ChronicleError):  # a project file that cannot be read is not this client's concern
        homes += [home for home in (home_of_project(),) if home is not None]
    return key_for_local_gateway(url, homes)
