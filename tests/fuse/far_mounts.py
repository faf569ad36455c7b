"""A mount service whose blob store is beyond a network that fails when a test wants; tests of a module share it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from chronicle.fuse.server.client import FuseWorkspace, open_fuse_workspace
from chronicle.fuse.zygote import launcher
from tests.faulty_proxy import FaultyProxy, running_proxy
from tests.s3_server import BUCKET, S3Server, point_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.workspace.port import LayerSpec

__all__ = ["FarMounts", "running_far_mounts"]


@dataclass(frozen=True, slots=True)
class FarMounts:
    """The mount service, and the proxy between it and the store."""

    directory: Path
    proxy: FaultyProxy

    @property
    def socket(self) -> Path:
        return self.directory / "zygote.sock"

    @property
    def cache(self) -> Path:
        """What was fetched."""
        return self.directory / "cache"

    def open(self, spec: LayerSpec, url: str) -> FuseWorkspace:
        """Mount a workspace. Its id is not that of another test's."""
        opened = open_fuse_workspace(self.socket, spec, url, self.directory / "m" / spec.workspace_id).workspace
        assert isinstance(opened, FuseWorkspace)
        return opened


@contextmanager
def running_far_mounts(
    directory: Path, transport: Transport, s3: S3Server, request_deadline_s: float | None = None, **environment: str
) -> Iterator[FarMounts]:
    """Start a mount service, and end it. Its log is printed, and has no traceback."""
    log = directory / "log"
    with pytest.MonkeyPatch.context() as patch, running_proxy(s3.port) as proxy:
        mounts = FarMounts(directory, proxy)
        point_at(patch, proxy.endpoint, mounts.cache)
        for name, value in environment.items():
            patch.setenv(name, value)
        _ = launcher.start(
            mounts.socket,
            directory / "m",
            log,
            os.getpid(),
            transport=transport,
            request_deadline_s=request_deadline_s,
            blobs_url=f"s3://{BUCKET}",
            few_mounts=True,
        )
        try:
            yield mounts
        finally:
            launcher.shut_down(mounts.socket)
            print(log.read_text())
    assert "Traceback" not in log.read_text()
