"""Chunking of large content by FastCDC, so that an insertion changes the chunks around it and no others.

The gear table (that of the ``fastcdc`` package) and the sizes below are part of every large file's id: they never
change without a new kind of content. ``test_content.py`` pins both with golden cuts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, overload

from fastcdc import fastcdc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["AVERAGE_CHUNK_BYTES", "MAX_CHUNK_BYTES", "MIN_CHUNK_BYTES", "WINDOW_BYTES", "chunks", "first_cut"]

MIN_CHUNK_BYTES: Final = 16 * 1024
AVERAGE_CHUNK_BYTES: Final = 64 * 1024
"""A change of one byte stores one new chunk: smaller chunks cost more entries, larger ones more bytes."""
MAX_CHUNK_BYTES: Final = 256 * 1024
WINDOW_BYTES: Final = 4 * 1024 * 1024
"""The size of one read; it does not influence the cuts."""


@overload
def chunks(read: Callable[[int], bytes], window_bytes: int = ...) -> Iterator[bytes]: ...


@overload
def chunks(read: Callable[[int], bytes | int], window_bytes: int = ...) -> Iterator[bytes | int]: ...


def chunks(read: Callable[[int], bytes | int], window_bytes: int = WINDOW_BYTES) -> Iterator[bytes | int]:
    """Yield the chunks of the data that ``read`` returns, in order. Memory is bounded by about two windows.

    A cut depends on the bytes since the cut before it, and on nothing else but the end of the data.

    Args:
        read: returns at most so many next bytes, and ``b""`` only at the end. Or a number above 0, however large: the
            count of zeros that are next.
        window_bytes: how much is read ahead, at least `MAX_CHUNK_BYTES`; less for callers that need the first chunks.

    Yields:
        a chunk; or, only where ``read`` returned numbers, the count of chunks of `MAX_CHUNK_BYTES` zeros that are next.
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
        taken = min(zeros, MAX_CHUNK_BYTES)  # enough to decide each cut that has other data before it
        window += bytes(taken)
        zeros -= taken
        start = 0
        for cut in fastcdc(window, MIN_CHUNK_BYTES, AVERAGE_CHUNK_BYTES, MAX_CHUNK_BYTES):
            if not ended and cut.offset + MAX_CHUNK_BYTES > len(window):
                break  # the cut may have been forced by the window's end: decide it with more data
            start = cut.offset + cut.length
            yield window[cut.offset : start]
        if zeros:
            zeros += len(window) - start  # the rest of the window is zeros
            window = b""
        else:
            window = window[start:]


def first_cut(data: bytes) -> int | None:
    """Return the end of the first chunk of data; ``None`` if the data has no cut, even after its last byte.

    A cut after the last byte does not depend on what follows: one byte is added to distinguish it from the end of data.
    """
    cut: int = next(iter(fastcdc(data + b"\0", MIN_CHUNK_BYTES, AVERAGE_CHUNK_BYTES, MAX_CHUNK_BYTES))).length
    return cut if cut <= len(data) else None
