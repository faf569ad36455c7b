"""Lifetimes of keys and tokens, as text such as ``90d``."""

from __future__ import annotations

import re
from typing import Final

from chronicle.errors import InvalidInput

__all__ = ["DEFAULT_LINK_S", "DEFAULT_TOKEN_S", "LONGEST_LINK_S", "LONGEST_TOKEN_S", "seconds_of"]

DEFAULT_TOKEN_S: Final = 15 * 60
LONGEST_TOKEN_S: Final = 24 * 60 * 60
"""Tokens are for browsers, whose storage others may read: they live for a day at most."""
DEFAULT_LINK_S: Final = 2 * 24 * 60 * 60
LONGEST_LINK_S: Final = 30 * 24 * 60 * 60
"""Links are sent by mail, which others may read later; they answer one question."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_FORM: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_LONGEST_S: Final = 100 * 365 * 86_400


def seconds_of(text: str) -> int:
    """Read a duration: a whole number with ``s``, ``m``, ``h`` or ``d`` for seconds, minutes, hours or days.

    Raises:
        InvalidInput: it is not one, or longer than 100 years.
    """
    found = _FORM.fullmatch(text.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_S:
        raise InvalidInput(f"{text!r} is not a duration; write a number and its unit, such as 30m, 12h or 90d")
    return seconds
