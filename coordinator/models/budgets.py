"""Budgets of tenants for a day, and costs of calls.

A budget is checked when a call begins: those that run when it is used up go on, and are the most by which it is
exceeded. Days begin at midnight, UTC.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coordinator.models.profiles import Price

__all__ = ["Spending", "cost_of", "day_of"]

_DAY_MS: Final = 86_400_000
_MILLION: Final = Decimal(1_000_000)


class Spending:
    """The cost of the calls of each tenant on the current day. It is not thread-safe."""

    def __init__(self) -> None:
        self._day_ms = 0
        self._spent: dict[str, Decimal] = {}

    def known(self, tenant: str, now_ms: int) -> Decimal | None:
        """Return what the calls of a tenant that ended cost, of the day of a time; ``None`` if that is not known."""
        return self._spent.get(tenant) if day_of(now_ms) == self._day_ms else None

    def of(self, tenant: str, now_ms: int, recorded: Decimal) -> Decimal:
        """Return what is known, or what the records had before the first call of the tenant on the day began.

        Args:
            recorded: that sum; it is known from now on.
        """
        day_ms = day_of(now_ms)
        if day_ms > self._day_ms:
            self._day_ms, self._spent = day_ms, {}
        return self._spent.setdefault(tenant, recorded) if day_ms == self._day_ms else recorded

    def add(self, tenant: str, started_ms: int, cost: str | None) -> None:
        """Add the cost of a call that is recorded."""
        if cost is not None and day_of(started_ms) == self._day_ms and tenant in self._spent:
            self._spent[tenant] += Decimal(cost)


def day_of(now_ms: int) -> int:
    """Return the beginning of the day of a time."""
    return now_ms - now_ms % _DAY_MS


def cost_of(
    price: Price | None, input_tokens: int | None, output_tokens: int | None, cached: int | None, written: int | None
) -> str | None:
    """Return what tokens cost, as a decimal number; ``None`` without a price, or if the tokens are not known.

    Args:
        input_tokens: with those that the cache had and those that were written to it.
        cached: tokens that the cache had.
        written: tokens that were written to the cache.
    """
    if price is None or (input_tokens is None and output_tokens is None):
        return None
    plain = max(0, (input_tokens or 0) - (cached or 0) - (written or 0))
    total = (
        plain * Decimal(price.input)
        + (cached or 0) * Decimal(price.cached or price.input)
        + (written or 0) * Decimal(price.cache_write or price.input)
        + (output_tokens or 0) * Decimal(price.output)
    ) / _MILLION
    return format(total.normalize(), "f")
