"""A node that does not have the content of the large files it changes, and a store that counts what is read of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.blobs.memory import MemoryBlobStore
from chronicle.clock import ManualClock
from chronicle.errors import Unavailable
from chronicle.workspace.layer.opening import open_layer
from chronicle.workspace.port import LayerSpec, TreeRef
from tests.layers import abandon, file_at, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.ids import BlobId
    from chronicle.workspace.layer.layer import Handle
    from chronicle.workspace.layer.state.node import FileNode


class CountingStore(MemoryBlobStore):
    """Says how many bytes were read, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0
        self.away = False

    def get(self, blob_id: BlobId) -> bytes:
        return self.get_many([blob_id])[blob_id]

    def get_many(self, blob_ids: Sequence[BlobId]) -> dict[BlobId, bytes]:
        if self.away:
            raise Unavailable("away")
        found = {blob_id: MemoryBlobStore.get(self, blob_id) for blob_id in blob_ids}
        self.bytes_read += sum(map(len, found.values()))
        return found


class Node:
    """A node that a workspace is opened on, with nothing of its contents."""

    def __init__(self, directory: Path, store: CountingStore, base: TreeRef | None) -> None:
        self.directory, self.store, self.base = directory, store, base
        self.epoch = 1
        self.recovered: TreeRef | None = None
        self.open()

    def open(self) -> None:
        spec = LayerSpec("w", self.directory, self.base, self.epoch, 1)
        self.layer, self.recovered = open_layer(spec, self.store, ManualClock())

    def file(self, path: str = "large") -> FileNode:
        return file_at(self.layer, path)

    def handle(self, path: str = "large") -> Handle:
        return self.layer.open(self.file(path))

    def close(self, handle: Handle) -> None:
        self.layer.flush(handle)
        self.layer.release(handle)

    def write(self, offset: int, data: bytes, path: str = "large") -> None:
        """Open, write and close."""
        handle = self.handle(path)
        assert self.layer.write(handle, offset, data) == len(data)
        self.close(handle)

    def read(self, path: str = "large") -> bytes:
        return read(self.layer, self.file(path))

    def versions(self, path: str = "large") -> list[bytes]:
        found = []
        for item in self.layer.history(path):
            if item.op != "delete":
                with self.layer.at(path, item.iteration) as file:
                    found.append(file.read())
        return found

    def commit(self) -> TreeRef:
        self.base = self.layer.seal()
        self.layer.adopt(self.base)
        return self.base

    def die(self) -> None:
        abandon(self.layer)
        self.open()
        assert self.recovered is None

    def data_files(self) -> int:
        return len(list((self.directory / "w" / str(self.epoch) / "data").iterdir()))

    def blocks(self) -> int:
        """What the data files take on the disk, bytes."""
        data = self.directory / "w" / str(self.epoch) / "data"
        return sum(path.stat().st_blocks * 512 for path in data.iterdir())


def stored_elsewhere(directory: Path, content: bytes) -> tuple[CountingStore, TreeRef]:
    store = CountingStore()
    node = Node(directory, store, None)
    for name in (b"large", b"other"):
        handle = node.layer.create(node.layer.root, name, 0o644, *node.layer.owner)
        node.layer.write(handle, 0, content if name == b"large" else b"other")
        node.close(handle)
    ref = node.commit()
    node.layer.close()
    return store, ref


def bytes_read() -> int:
    """How much this process has read by system calls."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])
