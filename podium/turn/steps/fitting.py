"""Whether recorded steps still fit the state: other turns may have been committed between two attempts of a message.

A step's record has the changes of the state since the beginning of its turn. On top of another turn that changed the
same places, they would undo that turn's changes: a counter would go back. Lists are compared as wholes, since their
changes go by indexes.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, cast

from podium.errors import StepsOutdated, UnknownMoment
from podium.state import diff
from podium.state.pointer import join, parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import TypeAlias

    from chronicle.canonical import JsonObject
    from podium.history.step_record import StepRecord
    from podium.state import Patch

    Place: TypeAlias = "tuple[str, ...]"

__all__ = ["check_fit", "common_places"]


async def check_fit(
    records: Sequence[StepRecord],
    turn: int,
    now: Callable[[], Awaitable[JsonObject]],
    at: Callable[[int], Awaitable[JsonObject]],
) -> None:
    """Check that no other turn has changed what steps changed. Without another turn, no state is read.

    Args:
        records: of the steps.
        turn: the agent's last one.
        now: returns the state's document.
        at: returns the document at the end of an earlier turn; raises `UnknownMoment` if that was dropped.

    Raises:
        StepsOutdated: another turn changed one of the same places, or may have.
    """
    for base_turn in sorted({record.base_turn for record in records} - {turn}):
        ours = _places([change for record in records if record.base_turn == base_turn for change in record.patch])
        if not ours:
            continue
        try:
            theirs = _places(diff(await at(base_turn), await now()))
        except UnknownMoment:
            raise _outdated(f"what was changed after turn {base_turn} is not known any more") from None
        both = _common(ours, theirs)
        if both:
            raise _outdated(f"they and a later turn changed {', '.join(both)} of the state")


def common_places(records: Sequence[StepRecord], patch: Patch) -> list[str]:
    """Return the places of the state that both steps and a patch change, as JSON pointers."""
    return _common(_places([change for record in records for change in record.patch]), _places(patch))


def _common(ours: set[Place], theirs: set[Place]) -> list[str]:
    return sorted(map(join, _inside(ours, theirs) | _inside(theirs, ours)))


def _places(patch: Patch) -> set[Place]:
    """Return the places of the state that a patch changes; that of a list for anything inside of it."""
    return {tuple(takewhile(lambda token: not token.isdigit(), parse(cast("str", each["path"])))) for each in patch}


def _inside(places: set[Place], others: set[Place]) -> set[Place]:
    """Return those of some places that are among the others, or inside of one."""
    return {place for place in places if any(place[:length] in others for length in range(len(place) + 1))}


def _outdated(reason: str) -> StepsOutdated:
    return StepsOutdated(f"the recorded steps do not fit the agent any more: {reason}")
