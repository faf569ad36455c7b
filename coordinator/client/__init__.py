"""A client of a home's agents. Begin with `async_client`.

`AsyncPodium` and its blocking twin `Podium` reach a home through one of the `backends`. Nothing here imports Ray or a
web framework. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium as AsyncPodium
    from coordinator.client.errors import *  # noqa: F403
    from coordinator.client.files import AsyncFiles as AsyncFiles
    from coordinator.client.paging import AsyncPages as AsyncPages
    from coordinator.client.run import AsyncRun as AsyncRun
    from coordinator.client.sse_parser import *  # noqa: F403
    from coordinator.client.sync_client import *  # noqa: F403
    from coordinator.operations.objects import *  # noqa: F403
else:
    _MODULES: Final = {
        "AsyncFiles": "coordinator.client.files",
        "AsyncPages": "coordinator.client.paging",
        "AsyncPodium": "coordinator.client.async_client",
        "AsyncRun": "coordinator.client.run",
    }
    _OTHERS: Final = (
        "coordinator.client.errors",
        "coordinator.operations.objects",
        "coordinator.client.sse_parser",
        "coordinator.client.sync_client",
    )
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES, *_OTHERS)
