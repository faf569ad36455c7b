"""The table from errors to errnos."""

from __future__ import annotations

import errno
import logging
from typing import Final

from chronicle import errors

__all__ = ["answer_errno", "errno_of"]

log = logging.getLogger(__name__)

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
"""The first matching class wins, so a subclass comes before its parent."""


def errno_of(error: BaseException) -> int | None:
    """Return the errno of an error; None if the error is a bug and not an answer."""
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    for kind, code in _TABLE:
        if isinstance(error, kind):
            return code
    return errno.EIO if isinstance(error, errors.ChronicleError) else None


def answer_errno(error: Exception, operation: str) -> int:
    """Return the errno to answer an operation with. A bug is logged with its trace and answered with EIO."""
    code = errno_of(error)
    if code is None:
        log.error("operation %s failed", operation, exc_info=error)
        return errno.EIO
    if not isinstance(error, OSError):
        log.warning("operation %s failed: %s", operation, error)
    return code
