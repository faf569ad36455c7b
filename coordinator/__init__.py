"""The coordinator: placement of agents on hosts, and delivery of messages to them.

It depends on Chronicle and Podium, and owns Ray. Its public API is exported here: a home and its settings, the client
of its service, and the file system of agents' workspaces. Each name is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chronicle.error_pickling import send_causes_of
from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium as AsyncPodium
    from coordinator.client.errors import ClientError as ClientError
    from coordinator.client.sync_client import Podium as Podium
    from coordinator.filesystem import AgentFileSystem as AgentFileSystem
    from coordinator.home import Home as Home
    from coordinator.service.client import AgentRef as AgentRef
    from coordinator.service.client import ServiceClient as ServiceClient
    from coordinator.service.client import ServiceError as ServiceError
    from coordinator.service.client import ServiceRefused as ServiceRefused
    from coordinator.service.connecting import attach as attach
    from coordinator.service.connecting import connect as connect
    from coordinator.settings import Settings as Settings
    from coordinator.settings import read_settings as read_settings

_MODULES: Final = {
    "AgentFileSystem": "coordinator.filesystem",
    "AgentRef": "coordinator.service.client",
    "AsyncPodium": "coordinator.client.async_client",
    "ClientError": "coordinator.client.errors",
    "Home": "coordinator.home",
    "Podium": "coordinator.client.sync_client",
    "ServiceClient": "coordinator.service.client",
    "ServiceError": "coordinator.service.client",
    "ServiceRefused": "coordinator.service.client",
    "Settings": "coordinator.settings",
    "attach": "coordinator.service.connecting",
    "connect": "coordinator.service.connecting",
    "read_settings": "coordinator.settings",
}

send_causes_of("coordinator")

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
