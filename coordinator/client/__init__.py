"""A client of a home's agents. Begin with `async_client`.

`AsyncPodium` and its blocking twin `Podium` reach a home through one of the `backends`. Nothing here imports Ray or a
web framework. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium as AsyncPodium
    from coordinator.client.errors import (
        AnswerTimeout as AnswerTimeout,
    )
    from coordinator.client.errors import (
        AuthenticationFailed as AuthenticationFailed,
    )
    from coordinator.client.errors import (
        BadAnswer as BadAnswer,
    )
    from coordinator.client.errors import (
        ClientError as ClientError,
    )
    from coordinator.client.errors import (
        InvalidRequest as InvalidRequest,
    )
    from coordinator.client.errors import (
        MessageCancelled as MessageCancelled,
    )
    from coordinator.client.errors import (
        MessageFailed as MessageFailed,
    )
    from coordinator.client.errors import (
        PermissionDenied as PermissionDenied,
    )
    from coordinator.client.errors import (
        RateLimited as RateLimited,
    )
    from coordinator.client.errors import (
        RequestConflict as RequestConflict,
    )
    from coordinator.client.errors import (
        ResourceNotFound as ResourceNotFound,
    )
    from coordinator.client.errors import (
        ServerFailed as ServerFailed,
    )
    from coordinator.client.errors import (
        Unreachable as Unreachable,
    )
    from coordinator.client.files import AsyncFiles as AsyncFiles
    from coordinator.client.paging import AsyncPages as AsyncPages
    from coordinator.client.run import AsyncRun as AsyncRun
    from coordinator.client.sse_parser import (
        ServerSentEvent as ServerSentEvent,
    )
    from coordinator.client.sse_parser import (
        SseParser as SseParser,
    )
    from coordinator.client.sse_parser import (
        parse_sse as parse_sse,
    )
    from coordinator.client.sync_client import Files as Files
    from coordinator.client.sync_client import Pages as Pages
    from coordinator.client.sync_client import Podium as Podium
    from coordinator.client.sync_client import Run as Run
    from coordinator.operations.objects import *  # noqa: F403

_ERRORS: Final = (
    "AnswerTimeout",
    "AuthenticationFailed",
    "BadAnswer",
    "ClientError",
    "InvalidRequest",
    "MessageCancelled",
    "MessageFailed",
    "PermissionDenied",
    "RateLimited",
    "RequestConflict",
    "ResourceNotFound",
    "ServerFailed",
    "Unreachable",
)
_MODULES: Final = {
    "AsyncFiles": "coordinator.client.files",
    "AsyncPodium": "coordinator.client.async_client",
    "AsyncRun": "coordinator.client.run",
    "AsyncPages": "coordinator.client.paging",
    **dict.fromkeys(("Files", "Pages", "Podium", "Run"), "coordinator.client.sync_client"),
    **dict.fromkeys(("ServerSentEvent", "SseParser", "parse_sse"), "coordinator.client.sse_parser"),
    **dict.fromkeys(_ERRORS, "coordinator.client.errors"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES, "coordinator.operations.objects")
