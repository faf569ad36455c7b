"""Texts for users of errors of the operating system: the path and the reason."""

from __future__ import annotations

import os
from pathlib import Path

from chronicle.system.atomic_files import is_partial

__all__ = ["os_error_text"]


def os_error_text(error: OSError) -> str:
    """Return an `OSError` as ``PATH: reason``, without its number; its own text if it has no reason.

    For a temporary file of an atomic replacement the text names its directory.
    """
    if not error.strerror:
        return str(error)
    named = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    places = [str(path.parent if is_partial(path) else path) for path in named]
    return ": ".join([" and ".join(dict.fromkeys(places)), error.strerror]) if places else error.strerror
