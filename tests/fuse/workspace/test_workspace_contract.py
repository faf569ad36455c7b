"""The workspace contract on real mounts, through real zygotes: two machines, each with its own layers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from chronicle.blobs.packs.pack_store import PackBlobStore
from chronicle.fuse.mountpoints.availability import Transport
from chronicle.fuse.server.client import open_fuse_workspace
from chronicle.fuse.zygote import launcher
from chronicle.testing.workspace_contract import VersionPerCloseContract

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.workspace.port import LayerSpec, Opened


@dataclass
class Machine:
    """A running zygote."""

    directory: Path
    transport: Transport

    @property
    def socket(self) -> Path:
        return self.directory / "zygote.sock"

    def start(self) -> None:
        launcher.start(
            self.socket, self.directory, self.directory / "log", os.getpid(), transport=self.transport, few_mounts=True
        )


@dataclass
class FuseNode:
    machines: list[Machine]
    directory: Path
    blobs: PackBlobStore
    url: str
    opened: list[Opened] = field(default_factory=list)

    @property
    def layers(self) -> Path:
        return self.directory / "layers"

    def open(self, spec: LayerSpec) -> Opened:
        self.layers.mkdir(parents=True, exist_ok=True)
        mountpoint = self.machines[0].directory / "mounts" / self.directory.name / (spec.workspace_id or "none")[:20]
        opened = open_fuse_workspace(self.machines[0].socket, spec, self.url, mountpoint)
        self.opened.append(opened)
        return opened

    def elsewhere(self) -> FuseNode:
        return FuseNode(self.machines[1:], self.directory / "far", self.blobs, self.url, self.opened)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, transport: Transport) -> Iterator[list[Machine]]:
    made = [Machine(tmp_path_factory.mktemp("machine"), transport) for _ in range(2)]
    for machine in made:
        machine.start()
    yield made
    for machine in made:
        launcher.shut_down(machine.socket)


class TestFuseWorkspace(VersionPerCloseContract):
    @pytest.fixture
    def node(self, tmp_path: Path, machines: list[Machine]) -> Iterator[FuseNode]:
        url = f"file://{tmp_path}/blobs"
        blobs = PackBlobStore(url)
        made = FuseNode(machines, tmp_path, blobs, url)
        yield made
        for opened in made.opened:
            opened.workspace.close()
        blobs.close()
