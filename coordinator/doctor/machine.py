"""Checks of this machine alone: the versions on it, and whether it can mount."""

from __future__ import annotations

import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse import available
from chronicle.repository import mounts
from chronicle.repository.repository import Repository
from coordinator.doctor.finding import failed, good, skipped, warning

if TYPE_CHECKING:
    from coordinator.doctor.finding import Finding, Subject

__all__ = ["check_mount", "check_versions"]

_WORKSPACE: Final = "doctor"
_NO_FUSE: Final = (
    "PODIUM_PRESENTATION=dir has agents work in plain directories, which needs no FUSE; on Kubernetes choose fuse.mode"
)


def check_versions(_: Subject) -> Finding:
    """Say which versions are here; those of a cluster and of a service are compared with them."""
    return good(f"podium {version('podium')}, Ray {version('ray')}, Python {platform.python_version()}")


def check_mount(subject: Subject) -> Finding:
    """Mount a new workspace, write to it, commit it, and read the version before the last one back."""
    settings = subject.settings
    if settings.presentation == "dir":
        return skipped("agents work in plain directories here (PODIUM_PRESENTATION=dir)")
    reason = available(settings.fuse_transport)
    if reason is not None and settings.presentation == "auto":
        return warning(f"agents work in plain directories here, which are compared once a turn: {reason}", _NO_FUSE)
    if reason is not None:
        return failed(reason, _NO_FUSE)
    with tempfile.TemporaryDirectory(prefix="podium-doctor-", dir=settings.workspaces) as directory:
        store, mountpoint = Repository(Path(directory) / "store"), Path(directory) / "mount"
        mountpoint.mkdir()
        mounts.mount(store, _WORKSPACE, mountpoint, with_caller=True, transport=settings.fuse_transport)
        try:
            read = _read_back(store, mountpoint / "file")
        finally:
            mounts.unmount(store, mountpoint)
    if read != b"first":
        return failed(f"a file on a mount below {settings.workspaces} had another content before: {read!r}")
    return good(f"mounted by FUSE below {settings.workspaces}, written, committed, and its history read")


def _read_back(store: Repository, file: Path) -> bytes:
    """Write two versions of a file, and return the first one as its history has it."""
    file.write_bytes(b"first")
    store.commit(_WORKSPACE, "first")
    file.write_bytes(b"second")
    with store.opened(_WORKSPACE) as opened:
        before = opened.history(file.name)[0]
        with opened.at(file.name, before.iteration) as version_before:
            return version_before.read()
