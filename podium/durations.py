"""Durations as agents' code gives them: seconds, a ``timedelta``, or a text such as ``2h``."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from chronicle.errors import InvalidInput, WrongType

__all__ = ["seconds_of"]

_LONGEST_S: Final = 5 * 366 * 86_400
"""Longest duration; an agent that is to do something later than that sets a reminder."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_TEXT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([smhd])")


def seconds_of(duration: object, what: str) -> float:
    """Return the seconds of a duration: a number of them, a ``timedelta``, or a text such as ``2h``.

    Args:
        what: what lasts so long, for the error, such as ``a pause``.

    Raises:
        InvalidInput: it is none, not more than 0 s, or longer than five years.
    """
    match duration:
        case bool():
            seconds = None
        case timedelta():
            seconds = duration.total_seconds()
        case int() | float():
            seconds = float(duration)
        case str():
            found = _TEXT.fullmatch(duration.strip())
            seconds = float(found[1]) * _UNITS[found[2]] if found else math.nan
        case _:
            seconds = None
    if seconds is None:
        raise WrongType(f"{what} lasts a number of seconds, a timedelta, or a text such as '2h'")
    if not 0 < seconds <= _LONGEST_S:
        raise InvalidInput(f"{what} lasts more than 0 s and at most five years, not {duration!r}; write such as '2h'")
    return seconds
