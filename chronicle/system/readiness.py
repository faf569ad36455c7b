"""Whether a descriptor can be read without a wait."""

from __future__ import annotations

import select

__all__ = ["is_readable"]


def is_readable(descriptor: int) -> bool:
    """Return whether a read would not wait: there are bytes, or the other end has hung up.

    Not by ``select.select``, which refuses descriptors from 1,024 on.
    """
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
