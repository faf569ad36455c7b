"""Readers of blobs that wrap another reader."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

from chronicle.blobs import blob_id
from chronicle.blobs.memory import MemoryBlobStore
from chronicle.blobs.readers import CachingReader


def test_threads_share_a_caching_reader() -> None:
    store = MemoryBlobStore()
    bodies = [random.Random(number).randbytes(16_000) for number in range(256)]  # twice what is cached
    ids = [blob_id(body) for body in bodies]
    store.put(dict(zip(ids, bodies, strict=True)))
    reader = CachingReader(store)

    def read(seed: int) -> None:
        chosen = random.Random(seed)
        for step in range(3_000):
            if step % 100 == 0:
                reader.drop_cached()
            number = chosen.randrange(len(ids))
            assert reader.get(ids[number]) == bodies[number]
            assert reader.get_many(ids[number : number + 2])[ids[number]] == bodies[number]

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(read, seed) for seed in range(4)]:
                done.result()
    finally:
        sys.setswitchinterval(interval_s)
