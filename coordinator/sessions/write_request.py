"""`WriteRequest`: what every write of a client to its sessions says, whatever it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.ids import IdSource

__all__ = ["WriteRequest"]


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """A request to write."""

    tenant: str
    key: str | None
    """The client's idempotency key; a repeat returns what was written."""
    ids: IdSource
    now_ms: int
    check: Callable[[str, int], None] | None = None
    """Raises `QuotaExceeded` if a tenant may not store a record with so many bytes; ``None``: it may."""
