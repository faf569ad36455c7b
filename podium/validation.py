"""What does not fit a type, in words: the first error of pydantic, and the place of the value that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import ValidationError

__all__ = ["first_problem", "place_in", "reason_of"]


def first_problem(error: ValidationError, value: object) -> tuple[tuple[str, ...], str]:
    """Return the place of the first problem in a value, and the problem as the end of a sentence."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = place_in(first["loc"], value)
    if first["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        place = (*place, str(first["ctx"]["discriminator"]).strip("'"))
    return place, reason_of(first["msg"])


def reason_of(message: str) -> str:
    """Return a message of pydantic as the end of a sentence; patterns and values in it stay as they are."""
    return message[:1].lower() + message[1:]


def place_in(location: Sequence[str | int], value: object) -> tuple[str, ...]:
    """Return where a problem is, without the tags of unions, which are in pydantic's locations and not in the value."""
    place: list[str | int] = []
    inside = value
    for number, part in enumerate(location, start=1):
        if isinstance(inside, dict | list) and _has(inside, part):
            inside = inside[part]  # type: ignore[index]  # checked
        elif number < len(location) or not isinstance(inside, dict):
            continue
        place.append(part)
    return tuple(str(part) for part in place)


def _has(inside: dict[object, object] | list[object], part: str | int) -> bool:
    if isinstance(inside, list):
        return isinstance(part, int) and part < len(inside)
    return part in inside
