"""A compact map from numbers to bytes that does not fragment the heap.

A dictionary of small objects takes 150 bytes an entry and more. Worse, its objects lie between others that were
allocated at the same time: a few long-lived ones keep the memory around them from being returned to the system. Here
entries are in arrays: 17 bytes each besides the value. A look-up is a binary search, 1 µs.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["PackedMap"]

_FRESH: Final = 1000
"""The least number of new, or removed, entries before the arrays are rebuilt."""


class PackedMap:
    """Bytes by number: 0 to 2⁶⁴ - 1. Recent entries are in a dictionary until there are many."""

    def __init__(self) -> None:
        self._keys = array("Q")
        """Ascending."""
        self._ends = array("Q")
        """Where in the data each value ends; it begins where the one before ends."""
        self._data = bytearray()
        self._dead = bytearray()
        """1 for an entry that was removed."""
        self._gone = 0
        self._fresh: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._keys) - self._gone + len(self._fresh)

    def __contains__(self, key: int) -> bool:
        return key in self._fresh or self._find(key) >= 0

    def get(self, key: int) -> bytes | None:
        """Return the value of a key, ``None`` if it has none."""
        value = self._fresh.get(key)
        if value is not None:
            return value
        index = self._find(key)
        return self._value(index) if index >= 0 else None

    def put(self, key: int, value: bytes) -> None:
        """Set the value of a key."""
        self._bury(key)
        self._fresh[key] = value
        if len(self._fresh) > max(_FRESH, len(self._keys) // 2):
            self.pack()

    def pop(self, key: int) -> bytes | None:
        """Remove a key and return its value, ``None`` if it had none."""
        value = self._fresh.pop(key, None)
        if value is not None:
            return value
        index = self._find(key)
        if index < 0:
            return None
        value = self._value(index)
        self._bury(key)
        return value

    def items(self) -> Iterator[tuple[int, bytes]]:
        """Yield all keys and values, in no order. The map must not be changed meanwhile."""
        for index, key in enumerate(self._keys):
            if not self._dead[index]:
                yield key, self._value(index)
        yield from self._fresh.items()

    def pack(self) -> None:
        """Move recent entries to the arrays."""
        fresh = sorted(self._fresh.items())
        self._fresh = {}
        if self._gone > len(self._keys) // 2 or (fresh and self._keys and fresh[0][0] <= self._keys[-1]):
            fresh = sorted([*self.items(), *fresh])
            self._keys, self._ends, self._data, self._dead = array("Q"), array("Q"), bytearray(), bytearray()
            self._gone = 0
        self._append(fresh)

    def _append(self, entries: Iterable[tuple[int, bytes]]) -> None:
        for key, value in entries:
            self._keys.append(key)
            self._data += value
            self._ends.append(len(self._data))
        self._dead += bytes(len(self._keys) - len(self._dead))

    def _bury(self, key: int) -> None:
        """Mark a key's entry in the arrays as removed."""
        index = self._find(key)
        if index >= 0:
            self._dead[index] = 1
            self._gone += 1
            if self._gone > max(_FRESH, len(self._keys) // 2):
                self.pack()

    def _find(self, key: int) -> int:
        index = bisect_left(self._keys, key)
        return index if index < len(self._keys) and self._keys[index] == key and not self._dead[index] else -1

    def _value(self, index: int) -> bytes:
        return bytes(self._data[self._ends[index - 1] if index else 0 : self._ends[index]])
