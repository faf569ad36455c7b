"""The documents by which services of one home agree which of them serves it, and who still has turns to end.

A service that takes part has a name (`coordinator.settings.Settings.service_name`), and tells every `TELL_S` that it is
there. Times in documents are compared with earlier ones of the same writer only, so no clocks have to agree.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from podium.errors import HomeError, PodiumError

if TYPE_CHECKING:
    from coordinator.documents import Documents

__all__ = [
    "STALE_S",
    "TELL_S",
    "Freshness",
    "HandedOver",
    "Member",
    "MemberState",
    "draining",
    "give_order",
    "member",
    "ordered",
    "tell_draining",
    "tell_member",
]

TELL_S: Final = 2.0
"""Interval at which a service tells that it is there."""
STALE_S: Final = 3 * TELL_S
"""A service that has told nothing for so long is taken for gone."""
_ORDER: Final = "hand-over.json"
_KEPT_IDS: Final = 50
"""Ids of earlier orders that are kept; only those of commands that may still be repeated matter."""
_DRAINING: Final = "draining.json"
_MEMBER: Final = "service-{}.json"


class HandedOver(PodiumError):
    """Another service has the home now: ask that one. Nothing was done."""

    def __init__(self) -> None:
        super().__init__("another service of this home has taken over")


class MemberState(StrEnum):
    """What a service does."""

    STARTING = "starting"
    STANDBY = "standby"
    """It has joined its Ray cluster, and waits for the claim on the home."""
    SERVING = "serving"
    DRAINING = "draining"
    """Another one has the claim, and its running turns are ending."""


@dataclass(frozen=True, slots=True)
class Member:
    """What a service tells of itself."""

    state: MemberState | None
    """``None`` for one that this version does not know."""
    podium: str
    """Its version."""
    told_ms: int


def member(documents: Documents, name: str) -> Member | None:
    """Return what the service of a name told last; ``None`` if there is none. What later versions add is left out.

    Raises:
        Unavailable: the documents cannot be reached.
    """
    found = _read(documents, _MEMBER.format(name))
    if not found:
        return None
    state = MemberState(found["state"]) if found["state"] in set(MemberState) else None
    return Member(state, found["podium"], found["told_ms"])


def tell_member(documents: Documents, name: str, state: MemberState | None, podium: str) -> None:
    """Tell what the service of a name does; for ``None`` that it is gone.

    Raises:
        StorageRefused: it cannot be written.
    """
    told = asdict(Member(state, podium, _now_ms())) if state is not None else {}
    documents.write(_MEMBER.format(name), json.dumps(told).encode())


def ordered(documents: Documents) -> str:
    """Return the name of the service that is to serve the home; empty for whichever has the claim.

    Raises:
        Unavailable: the documents cannot be reached.
    """
    return str(_read(documents, _ORDER).get("to", ""))


def give_order(documents: Documents, name: str, order_id: str = "") -> None:
    """Have the service of a name serve the home, as soon as it stands by.

    Args:
        order_id: of the order, by which its repetition is recognised; empty for one that is never repeated.

    Raises:
        HomeError: the order was given before, and a later one has followed it; nothing was ordered.
        StorageRefused: it cannot be written.
    """
    found = _read(documents, _ORDER)
    last, earlier = found.get("order", ""), found.get("earlier", [])
    if order_id and order_id in earlier:
        raise HomeError(f"{found['to']} is ordered to serve the home, later than {name} was by the order {order_id}")
    if order_id and order_id == last:
        return
    earlier = [*earlier, last][-_KEPT_IDS:] if last else earlier
    documents.write(_ORDER, json.dumps({"to": name, "order": order_id, "earlier": earlier}).encode())


def draining(documents: Documents) -> tuple[str, int] | None:
    """Return the service that has handed the home over and still has turns to end, with the time when it told so.

    Raises:
        Unavailable: the documents cannot be reached.
    """
    found = _read(documents, _DRAINING)
    return (found["service"], found["told_ms"]) if found else None


def tell_draining(documents: Documents, name: str, *, ended: bool = False) -> None:
    """Tell that the service of a name has turns to end, or that they have ended.

    Raises:
        StorageRefused: it cannot be written.
    """
    if ended and ((now := draining(documents)) is None or now[0] != name):
        return
    told = {} if ended else {"service": name, "told_ms": _now_ms()}
    documents.write(_DRAINING, json.dumps(told).encode())


class Freshness:
    """Whether something that is told again and again has been told lately, by this process's clock.

    Args:
        is_seen: whether what is seen first counts as told now.
    """

    def __init__(self, *, is_seen: bool) -> None:
        self._is_seen = is_seen
        self._told: object = None
        self._since_s = time.monotonic() if is_seen else float("-inf")

    def holds(self, told: object) -> bool:
        """Note what is told now, ``None`` for nothing; return whether it is fresh."""
        if told is None:
            self._told = None
            if not self._is_seen:
                self._since_s = float("-inf")
            return False
        if told != self._told:
            if self._told is not None or self._is_seen:
                self._since_s = time.monotonic()
            self._told = told
        return self.age_s <= STALE_S

    @property
    def age_s(self) -> float:
        """How long ago it was told, as far as it was seen."""
        return time.monotonic() - self._since_s


def _read(documents: Documents, name: str) -> dict[str, Any]:
    data = documents.read(name)
    found: dict[str, Any] = json.loads(data) if data else {}
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
