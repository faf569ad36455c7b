"""Checks of this machine alone: the versions on it, whose files are in the home, and whether it can mount."""

from __future__ import annotations

import os
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chronicle.fuse import available
from chronicle.repository import mounts
from chronicle.repository.repository import Repository
from coordinator.doctor.finding import failed, good, skipped, warning
from coordinator.home.host_places import host_places

if TYPE_CHECKING:
    from coordinator.doctor.finding import Finding, Subject

__all__ = ["check_mount", "check_owners", "check_versions"]

_WORKSPACE: Final = "doctor"
_NO_FUSE: Final = (
    "PODIUM_PRESENTATION=dir has agents work in plain directories, which needs no FUSE; on Kubernetes choose fuse.mode"
)


def check_versions(_: Subject) -> Finding:
    """Say which versions are here; those of a cluster and of a service are compared with them."""
    return good(f"podium {version('podium')}, Ray {version('ray')}, Python {platform.python_version()}")


def check_owners(subject: Subject) -> Finding:
    """Say whose the home's directory and what lies in it are, and whether hosts of another user are one."""
    home, user = subject.home, os.geteuid()
    if not home.exists:
        return skipped(f"{home.path}: no home yet: podium up makes it")
    others = sorted({path.lstat().st_uid for path in (home.path, *home.path.iterdir())} - {user})
    if others and user != 0:
        return failed(
            f"{home.path} has files of the users {', '.join(map(str, others))}, and this one is {user}",
            f"run podium as one user; chown -R {user} {home.path} if that is this one",
        )
    places = host_places(home, subject.settings.hosts_dir)
    if places.group is None:
        return good(f"all of {home.path} belongs to the user {user}, as whom agents run, too")
    try:
        hosts = places.user()
    except FileNotFoundError:
        return good(f"{home.path} belongs to the user {user}; no node of Ray has used {places.home} yet")
    return good(f"{home.path} belongs to the user {user}, and agents run as {hosts}")


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
