"""One store, several processes: writers, one of which is killed in the middle, and readers that follow them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from chronicle.blobs import blob_id
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.testing.blob_contract import named

TURNS = 60

WRITER = """
import sys
import chronicle.blobs.packs.local_catalog as catalog
from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.testing.blob_contract import named

catalog._LOG_BYTES = 3_000  # folded every few puts
url, number, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = PackBlobStore(url)
for turn in range(turns):
    blobs = named(f"own {number} {turn}".encode(), f"common {turn}".encode(), b"always the same")
    store.put(blobs)
    print(turn, flush=True)
"""

READER = """
import sys
from chronicle.blobs import blob_id
from chronicle.blobs.packs.pack_store import PackBlobStore

store = PackBlobStore(sys.argv[1], cache_bytes=0)
for line in sys.stdin:
    number, turn = line.split()
    for text in (f"own {number} {turn}", f"common {turn}", "always the same"):
        assert store.get(blob_id(text.encode())) == text.encode()
print("all read", flush=True)
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


def test_writers_and_readers(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    writers = [start(WRITER, url, str(number), str(TURNS)) for number in range(3)]
    killed = start(WRITER, url, "9", "100000")
    readers = [start(READER, url) for _ in range(2)]
    acknowledged: list[tuple[int, int]] = []
    try:
        for turn in range(TURNS):
            for number, writer in enumerate(writers):
                assert writer.stdout is not None
                assert writer.stdout.readline() == f"{turn}\n"
                acknowledged.append((number, turn))
                for reader in readers:
                    assert reader.stdin is not None
                    reader.stdin.write(f"{number} {turn}\n")
                    reader.stdin.flush()
            if turn == TURNS // 2:
                killed.send_signal(signal.SIGKILL)
        for reader in readers:
            output, _ = reader.communicate(timeout=60)
            assert (reader.returncode, output) == (0, "all read\n")
        assert [writer.wait(60) for writer in writers] == [0, 0, 0]
        last_words, _ = killed.communicate(timeout=60)
    finally:
        for process in (*writers, *readers, killed):
            process.kill()
            process.communicate()
    acknowledged.extend((9, int(turn)) for turn in last_words.split())
    store = PackBlobStore(url)
    for number, turn in acknowledged:
        for text in (f"own {number} {turn}".encode(), f"common {turn}".encode()):
            assert store.get(blob_id(text)) == text
    assert not store.missing(named(b"always the same"))
    assert len(list((tmp_path / "store" / "index").glob("*.idx"))) < 15
