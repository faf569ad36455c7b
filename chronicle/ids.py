"""Identifiers: the type of each kind of id, and the generation of new ones.

Ids are opaque, prefixed and sort by creation time: ``evt_`` and 26 characters of Crockford base32, 10 for
48 bits of epoch milliseconds and 16 for 80 random bits. Time and randomness are arguments, so that a seeded simulator
generates the same ids again.
"""

from __future__ import annotations

import os
import random
import secrets
from typing import Final, NewType, Protocol

__all__ = [
    "BlobId",
    "BranchId",
    "EventId",
    "IdSource",
    "MessageId",
    "RandomBits",
    "SessionId",
    "SystemRandomBits",
    "is_id",
    "made_ms",
]

SessionId = NewType("SessionId", str)
"""``ses_…``: a container of branches. Each agent has one."""
BranchId = NewType("BranchId", str)
"""``br_…``: a line of events."""
EventId = NewType("EventId", str)
"""``evt_…``: one event of a branch."""
MessageId = NewType("MessageId", str)
"""``msg_…``: one admitted message."""
BlobId = NewType("BlobId", str)
"""64 lower-case hex digits: the BLAKE3 of the blob's bytes."""

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford: no I, L, O, U
_TIME_DIGITS: Final = 10
_RANDOM_DIGITS: Final = 16
_RANDOM_BITS: Final = 80
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_DRAWN: Final = 256
"""Ids whose random bits are read from the kernel at a time: a call for each took a seventh of a shared host's event
loop, because it releases the interpreter's lock and may wait for other threads to get it back."""
_drawn: Final[list[int]] = []
"""Random bits of ids, drawn ahead. Threads share them, and a forked child draws its own."""


def _draw() -> int:
    """Draw the random bits of many ids, and return those of one."""
    size = _RANDOM_BITS // 8
    data = os.urandom(size * _DRAWN)
    first, *others = (int.from_bytes(data[start : start + size], "big") for start in range(0, len(data), size))
    _drawn.extend(others)
    return first


os.register_at_fork(after_in_child=_drawn.clear)


class RandomBits(Protocol):
    """A source of random bits; ``random.Random`` is one, which makes runs repeatable."""

    def getrandbits(self, k: int, /) -> int:
        """Return a non-negative integer of at most ``k`` bits."""


class SystemRandomBits:
    """The operating system's randomness, which no two processes share: what was drawn ahead is dropped at a fork."""

    def getrandbits(self, k: int, /) -> int:
        """Return ``k`` bits from the kernel."""
        if k != _RANDOM_BITS:
            return secrets.randbits(k)
        try:
            return _drawn.pop()
        except IndexError:
            return _draw()


class IdSource:
    """Generates ids from an injected source of randomness.

    Args:
        bits: where the 80 random bits of an id come from; the operating system unless a test gives a seeded
            ``random.Random``.
    """

    def __init__(self, bits: RandomBits | random.Random | None = None) -> None:
        self._bits: RandomBits = bits if bits is not None else SystemRandomBits()

    def session(self, now_ms: int) -> SessionId:
        """Return a new session id."""
        return SessionId("ses_" + self._tail(now_ms))

    def branch(self, now_ms: int) -> BranchId:
        """Return a new branch id."""
        return BranchId("br_" + self._tail(now_ms))

    def event(self, now_ms: int) -> EventId:
        """Return a new event id."""
        return EventId("evt_" + self._tail(now_ms))

    def message(self, now_ms: int) -> MessageId:
        """Return a new message id."""
        return MessageId("msg_" + self._tail(now_ms))

    def other(self, prefix: str, now_ms: int) -> str:
        """Return a new id with a prefix of the caller's, such as ``host_``."""
        return prefix + self._tail(now_ms)

    def _tail(self, now_ms: int) -> str:
        random_bits = self._bits.getrandbits(_RANDOM_BITS)
        high, low = random_bits >> 40, random_bits & 0xFF_FFFF_FFFF
        # Unrolled: a turn needs five ids, and this takes half the time of a loop over one large integer.
        return (
            f"{_PAIRS[now_ms >> 40]}{_PAIRS[now_ms >> 30 & 1023]}{_PAIRS[now_ms >> 20 & 1023]}"
            f"{_PAIRS[now_ms >> 10 & 1023]}{_PAIRS[now_ms & 1023]}"
            f"{_PAIRS[high >> 30]}{_PAIRS[high >> 20 & 1023]}{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"
            f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
        )


def is_id(text: str, prefix: str) -> bool:
    """Whether a text has the form of an id with a prefix."""
    tail = text.removeprefix(prefix)
    return text.startswith(prefix) and len(tail) == _TIME_DIGITS + _RANDOM_DIGITS and not set(tail) - set(_ALPHABET)


def made_ms(identifier: str) -> int:
    """Return the creation time of an id, in epoch milliseconds, from its last 26 characters.

    Raises:
        ValueError: the text is not an id.
    """
    value = 0
    for digit in identifier[-_TIME_DIGITS - _RANDOM_DIGITS : -_RANDOM_DIGITS]:
        value = (value << 5) | _ALPHABET.index(digit)
    return value
