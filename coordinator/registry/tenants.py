"""The table ``[tenants]`` of a project file: the quotas of tenants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from podium.address import check_tenant
from podium.errors import InvalidAddress

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["QUOTAS", "check_tenants"]

QUOTAS: Final = ("agents", "awake_agents", "bytes", "messages_per_minute")
"""The keys of a ``[tenants.NAME.quota]``."""


def check_tenants(table: Mapping[str, Any]) -> tuple[dict[str, dict[str, int]], tuple[str, str] | None]:
    """Check the table ``tenants`` of a project file.

    Returns:
        the quotas by tenant, and the key and the reason of the first problem, if there is one.
    """
    quotas: dict[str, dict[str, int]] = {}
    for name, tenant in table.items():
        try:
            check_tenant(name)
        except InvalidAddress as error:
            return {}, (f"tenants.{name}", str(error))
        if not isinstance(tenant, dict) or set(tenant) - {"quota"}:
            return {}, (f"tenants.{name}", "write a table [tenants.NAME.quota]; a tenant has nothing else")
        quota = tenant.get("quota", {})
        if not isinstance(quota, dict):
            return {}, (f"tenants.{name}.quota", "write a table [tenants.NAME.quota]")
        for key, value in quota.items():
            if key not in QUOTAS:
                return {}, (
                    f"tenants.{name}.quota.{key}",
                    f"there is no such quota; the quotas are {', '.join(QUOTAS)}",
                )
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
                return {}, (f"tenants.{name}.quota.{key}", f"{value!r} is not a whole number of 0 or more")
        quotas[name] = dict(quota)
    return quotas, None
