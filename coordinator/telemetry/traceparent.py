"""The header ``traceparent`` of W3C Trace Context, as callers send it."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["read_traceparent"]

_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.{0,200})?")


def read_traceparent(value: object) -> str | None:
    """Return a value that is a ``traceparent``, else ``None``: the specification asks to ignore what is none.

    Of a version later than 00, what follows its flags is left out.
    """
    if not isinstance(value, str) or not (found := _FORM.fullmatch(value)):
        return None
    later = found[1] is not None
    if later and value.startswith("00-"):
        return None
    return value[: -len(found[1])] if later else value
