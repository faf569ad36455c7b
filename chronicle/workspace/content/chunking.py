"""Where large content is cut: FastCDC, so that an insertion changes the chunks around it and no others.

The gear table (that of the ``fastcdc`` package) and the sizes below are part of every large file's id: they never
change without a new kind of content. ``tests/unit/test_chunking.py`` pins both with golden cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, overload

from fastcdc import fastcdc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["AVERAGE_CHUNK_BYTES", "MAX_CHUNK_BYTES", "MIN_CHUNK_BYTES", "WINDOW_BYTES", "chunks", "first_cut"]

MIN_CHUNK_BYTES: Final = 16 * 1024
AVERAGE_CHUNK_BYTES: Final = 64 * 1024
"""A change of one byte stores one chunk anew: smaller chunks cost more entries, larger ones more bytes."""
MAX_CHUNK_BYTES: Final = 256 * 1024
WINDOW_BYTES: Final = 4 * 1024 * 1024
"""How much is read at a time; it has no influence on the cuts."""


@overload
def chunks(read: Callable[[int], bytes], window_bytes: int = ...) -> Iterator[bytes]: ...


@overload
def chunks(read: Callable[[int], bytes | int], window_bytes: int = ...) -> Iterator[bytes | int]: ...


def chunks(read: Callable[[int], bytes | int], window_bytes: int = WINDOW_BYTES) -> Iterator[bytes | int]:
    """Yield the chunks of what ``read`` gives, in order. Holds about two windows at a time.

    A cut depends on the bytes since the cut before it, and on nothing else but the end of the data.

    Args:
        read: returns at most so many next bytes, and ``b""`` only at the end. Or a number above 0, however large: so
            many zeros are next.
        window_bytes: how much is read ahead, at least `MAX_CHUNK_BYTES`; less suits who wants the first chunks only.

    Yields:
        a chunk; or, only where ``read`` gave numbers, how many chunks of `MAX_CHUNK_BYTES` zeros are next.
    """
    window = b""
    ended = False
    zeros = 0
    while True:
        while not (ended or zeros) and len(window) < window_bytes:
            more = read(window_bytes - len(window))
            if isinstance(more, int):
                zeros = more
            else:
                ended = not more
                window = window + more if window else more
        if zeros and not window:
            if zeros >= MAX_CHUNK_BYTES:
                yield zeros // MAX_CHUNK_BYTES
            window, zeros = bytes(zeros % MAX_CHUNK_BYTES), 0
            continue
        if not window:
            return
        taken = min(zeros, MAX_CHUNK_BYTES)  # enough to decide each cut that has anything else before it
        window += bytes(taken)
        zeros -= taken
        start = 0
        for cut in fastcdc(window, MIN_CHUNK_BYTES, AVERAGE_CHUNK_BYTES, MAX_CHUNK_BYTES):
            if not ended and cut.offset + MAX_CHUNK_BYTES > len(window):
                break  # the cut may have been forced by the window's end: decide it with more data
            start = cut.offset + cut.length
            yield window[cut.offset : start]
        if zeros:
            zeros += len(window) - start  # what is left of the window are zeros
            window = b""
        else:
            window = window[start:]


def first_cut(data: bytes) -> int | None:
    """Return where the first chunk of data ends, at the latest with its last byte; ``None`` if not even there.

    A cut after the last byte holds whatever follows: one byte is added to tell it from the end of the data.
    """
    cut: int = next(iter(fastcdc(data + b"\0", MIN_CHUNK_BYTES, AVERAGE_CHUNK_BYTES, MAX_CHUNK_BYTES))).length
    return cut if cut <= len(data) else None
