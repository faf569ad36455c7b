"""From errors to errnos, in one table."""

from __future__ import annotations

import errno
from typing import Final

from chronicle import errors

__all__ = ["errno_of"]

_TABLE: Final[tuple[tuple[type[errors.ChronicleError], int], ...]] = (
    (errors.NotFound, errno.ENOENT),
    (errors.InvalidInput, errno.EINVAL),
    (errors.StaleEpoch, errno.ESTALE),
    (errors.Conflict, errno.EBUSY),
    (errors.InboxFull, errno.EAGAIN),
    (errors.Corrupt, errno.EIO),
    (errors.UnsupportedFormat, errno.EIO),
    (errors.Unavailable, errno.EIO),
)
"""The first class that fits wins, so a subclass comes before its parent."""


def errno_of(error: BaseException) -> int | None:
    """Return the errno that an operation fails with; None if the error is a bug and not an answer."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    for kind, code in _TABLE:
        if isinstance(error, kind):
            return code
    return errno.EIO if isinstance(error, errors.ChronicleError) else None
