"""The records of calls of models, as HTTP shows them: a tenant's own, the latest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator.operations.cursors import cursor_after, place_after
from coordinator.operations.objects.pages import Page
from coordinator.operations.objects.result import Result

if TYPE_CHECKING:
    from coordinator.models.calls import CallRecord
    from coordinator.models.records import CallLog
    from coordinator.operations.cursors import Rest

__all__ = ["ModelCall", "call_page", "record_page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall(Result):
    """A call of a model. It is recorded whether or not its turn is committed."""

    call_id: str
    owner: str
    """An agent, `type/key`, or a response, `rsp_…`."""
    turn: int | None
    """The agent's turn."""
    profile: str
    provider: str
    model: str
    """The model that answered, in the provider's words."""
    status: str
    """`running`, `completed`, `failed`, `cancelled`, or `lost` with a process that was killed."""
    error: dict[str, Any] | None
    """`kind` and `message`."""
    input_tokens: int | None
    """Null: not reported; so with the others."""
    output_tokens: int | None
    cached_tokens: int | None
    cache_miss_reason: str | None
    cost: str | None
    """A decimal number, in the unit of the profile's price."""
    attempts: tuple[dict[str, Any], ...]
    started_at: int
    ttft_ms: int | None
    """Time to the first token."""
    latency_ms: int | None


def call_page(
    log: CallLog, tenant: str, owner: str | None, profile: str | None, limit: int, cursor: str | None
) -> Page[ModelCall]:
    """Return a page of a tenant's calls; see `record_page`."""
    found, rest = record_page(log, tenant, owner, profile, limit, cursor)
    return Page(items=[_object(record) for record in found], **rest)


def record_page(
    log: CallLog, tenant: str | None, owner: str | None, profile: str | None, limit: int, cursor: str | None
) -> tuple[list[CallRecord], Rest]:
    """Return the records of a page of calls, the latest first, and what follows the page.

    Args:
        log: the records.
        tenant: only those of this one; of all, if ``None``.
        owner: only those of this one.
        profile: only those of this one.
        limit: the most items.

    Raises:
        InvalidCursor: it is of another list.
        StorageRefused, Corrupt: the records cannot be read.
    """
    of = [tenant, owner, profile]
    started, _, call_id = place_after(cursor, "model calls", of, "").partition(" ")
    before = (int(started), call_id) if started.isdecimal() else None
    found = log.latest(tenant, limit + 1, owner=owner, profile=profile, before=before)
    if len(found) <= limit:
        return found, {"next_cursor": None, "remaining": 0}
    page = found[:limit]
    last = (page[-1].started_ms, page[-1].call_id)
    return page, {
        "next_cursor": cursor_after("model calls", of, f"{last[0]} {last[1]}"),
        "remaining": log.count(tenant, owner=owner, profile=profile, before=last),
    }


def _object(record: CallRecord) -> ModelCall:
    value = record.to_json()
    return ModelCall(
        call_id=record.call_id,
        owner=record.owner,
        turn=record.turn,
        profile=record.profile,
        provider=record.provider,
        model=record.model,
        status=record.status,
        error=value["error"],
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        cached_tokens=record.cached_tokens,
        cache_miss_reason=record.cache_miss_reason,
        cost=record.cost,
        attempts=tuple(value["attempts"]),
        started_at=record.started_ms,
        ttft_ms=record.ttft_ms,
        latency_ms=record.latency_ms,
    )
