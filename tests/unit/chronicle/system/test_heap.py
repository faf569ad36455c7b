"""Holes of a heap, and what a fork copies because of them."""

from __future__ import annotations

import subprocess
import sys

HOLES = 2_000
PROGRAM = f"""
import ctypes, os, re
from chronicle.system.heap import pack_heap_before_fork

library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
taken = [library.malloc(size) for _ in range({HOLES}) for size in (200, 4_000)]
for chunk in taken[::2]:
    library.free(chunk)
del chunk

def copied_kb():
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        for _ in range({HOLES} // 2):
            ctypes.memset(library.malloc(150), 1, 150)
        sizes = open("/proc/self/smaps_rollup").read()
        os.write(writer, re.search(r"Private_Dirty: +([0-9]+)", sizes)[1].encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reader, 100))

print(copied_kb(), pack_heap_before_fork(), copied_kb(), pack_heap_before_fork())
"""


def test_a_forked_process_copies_no_page_for_a_hole_that_was_filled() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    before_kb, filled, after_kb, again = map(int, result.stdout.split())
    assert filled >= HOLES * 0.9
    assert before_kb - after_kb >= HOLES // 2 * 4 * 0.8, "a page for each allocation"
    assert again <= filled // 10
