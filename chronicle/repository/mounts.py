"""The mounts of a store: mounting, unmounting and looking them up."""

from __future__ import annotations

import math
import os
import time
import urllib.parse
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar, cast

from chronicle.control.messages import Ended
from chronicle.errors import ChronicleError, Conflict, InvalidInput, MountInUse, MountUnreachable, NotFound, Unavailable
from chronicle.fuse import available
from chronicle.fuse.mountpoints import availability, mountinfo, mounts, users
from chronicle.fuse.mountpoints.claim import claim_mountpoint
from chronicle.fuse.server.client import attach_fuse_workspace, list_mounts, open_fuse_workspace, unmount_workspace
from chronicle.fuse.zygote import launcher
from chronicle.repository import commit_writer
from chronicle.repository.store_directory import SCHEME
from chronicle.workspace.layer.workspace_home import workspace_home
from chronicle.workspace.port import LayerSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chronicle.fuse.mountpoints.availability import Transport
    from chronicle.fuse.server.client import FuseWorkspace
    from chronicle.repository.store_directory import StoreDirectory
    from chronicle.workspace.port import Opened, Quota

__all__ = ["attached", "mount", "mounted_at", "unmount"]

_Answer = TypeVar("_Answer")
_ENDING_DEADLINE_S: Final = 10.0
"""Deadline for a mount service to end when its last mount is gone, usually some ten milliseconds, or to start, usually
half a second; it kills a server that does not end after five seconds."""
_ENDING_POLL_S: Final = 0.005
_NAMED: Final = 5
"""Users of a mount that an error names at most."""


def mount(
    store: StoreDirectory,
    workspace: str,
    mountpoint: Path,
    *,
    with_caller: bool,
    quota: Quota | None = None,
    transport: Transport = availability.DEFAULT_TRANSPORT,
) -> Path:
    """Mount a workspace; it is created if missing, and so is the store. A refused call creates nothing.

    Args:
        with_caller: unmount when the calling process ends.
        quota: the limits of the workspace while it is mounted.
        transport: between the mount and the kernel; existing mounts of the store keep theirs.

    Returns:
        the mountpoint, absolute and without symlinks.

    Raises:
        Unavailable: FUSE cannot be used here, or mounting failed.
        Conflict: the workspace is mounted, or another process has it open; the mountpoint is in use.
        InvalidInput: the mountpoint or the name is unusable.
    """
    reason = available(transport)
    if reason is not None:
        raise Unavailable(reason)
    workspace_home(LayerSpec(workspace, store.layers, None, commit_writer.EPOCH, 1))
    mountpoint = mountinfo.resolve_mountpoint(mountpoint)
    _check_apart(store, mountpoint)
    _unmount_abandoned(store, mountpoint)
    mounts.check_mountpoint(mountpoint)
    _check_unmounted(store, workspace)
    store.create()
    with store.shared_lock(), store.workspace_lock(workspace):
        _check_unmounted(store, workspace)  # another command may have been faster
        with store.journal(workspace, new=True) as journal:
            session = commit_writer.ensure_session(store, journal, workspace)
            spec = replace(commit_writer.spec_of(store, journal, session), quota=quota)
        _mount(store, spec, mountpoint, with_caller=with_caller, transport=transport)
    return mountpoint


def _check_unmounted(store: StoreDirectory, workspace: str) -> None:
    mounted = attached(store, workspace)
    if mounted is not None:
        mounted.detach()
        raise Conflict(f"workspace {workspace!r} is mounted at {mounted.root} already; unmount it first")


def _mount(
    store: StoreDirectory, spec: LayerSpec, mountpoint: Path, *, with_caller: bool, transport: Transport
) -> None:
    try:
        opened = _ordered(store, spec, mountpoint, with_caller=with_caller, transport=transport)
        workspace = cast("FuseWorkspace", opened.workspace)
        try:
            commit_writer.keep_recovered(store, spec, opened.recovered, workspace.begin_turn)
        except BaseException:
            with suppress(ChronicleError):
                unmount_workspace(store.socket, mountpoint)
            raise
        finally:
            workspace.detach()
    except BaseException:
        # The service ends by itself after its last mount, but it may never have had one.
        with suppress(Unavailable):
            launcher.shut_down(store.socket, unused=True)
        raise


def _ordered(
    store: StoreDirectory, spec: LayerSpec, mountpoint: Path, *, with_caller: bool, transport: Transport
) -> Opened:
    """Request a mount from the mount service; start it if there is none, and again if it ended under the request."""
    run = store.socket.parent
    until = math.inf
    while True:
        service = launcher.start(
            store.socket,
            run / "mounts",
            run / "log",
            transport=transport,
            until_idle=True,
            blobs_url=store.blobs_url,
        )
        try:
            with store.naming_damaged(spec.workspace_id):
                return open_fuse_workspace(
                    store.socket, spec, store.blobs_url, mountpoint, with_caller=with_caller, source=_source(store)
                )
        except Ended:
            until = min(until, time.monotonic() + _ENDING_DEADLINE_S)
            # If it was killed during the request, a server that it forked unmounts before it ends.
            while time.monotonic() < until and (_is_ending(store, service) or _is_of(store, mountpoint)):
                time.sleep(_ENDING_POLL_S)
            if time.monotonic() >= until:
                raise


def _is_ending(store: StoreDirectory, service: int) -> bool:
    """Whether the mount service of a process id still exists, and was not replaced by another one."""
    return launcher.is_alive(store.socket) and launcher.is_running(store.socket) in (None, service)


def unmount(store: StoreDirectory, mountpoint: Path, *, force: bool = False) -> None:
    """Unmount a workspace; uncommitted changes stay in the store.

    Args:
        force: also if programs use it: their later writes are lost and fail with errors. Mounts below it are unmounted
            too.

    Raises:
        NotFound: nothing of this store is mounted there; or its directory is gone, without ``force``.
        Conflict: programs use it, something is mounted below it, or another command on it takes too long.
        Unavailable: the mount service does not answer, without ``force``.
    """
    mountpoint = mountinfo.resolve_mountpoint(mountpoint)
    if not force:
        store.check_present()
    try:
        served = _served(store)
    except Unavailable as error:
        if not force:
            _check_unused(mountpoint, served=True)
            raise MountUnreachable(str(error), os.fspath(mountpoint)) from error
        mounts.unmount(mountpoint)
        return
    if os.fspath(mountpoint) not in served:
        if not _unmount_abandoned(store, mountpoint, force=force):
            raise NotFound(f"nothing of {store.name} is mounted at {mountpoint}")
        return
    workspace = served[os.fspath(mountpoint)]["workspace_id"]
    try:
        if force:
            unmount_workspace(store.socket, mountpoint)
            return
        with store.workspace_lock(str(workspace)):  # commands that commit or compare it finish first
            mount_now = _served(store).get(os.fspath(mountpoint), {})
            if mount_now.get("workspace_id") == workspace:
                _check_unused(mountpoint, served=True)
                unmount_workspace(store.socket, mountpoint)
                return
    except Ended:  # with its last mount, which another process unmounted; or it was killed, and this mount still exists
        pass
    unmount(store, mountpoint, force=force)  # the present mount


def _check_unused(mountpoint: Path, *, served: bool) -> None:
    """Refuse to unmount a mount that is in use.

    Args:
        served: whether programs can write there. If not, open files do not matter.
    """
    found = users.mounted_below(mountpoint)
    if served:
        found += users.users_of(mountpoint)
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise MountInUse(
            f"{mountpoint} is in use: {'; '.join(found[:_NAMED])}{more}. End that first; what programs write there "
            "after a forced unmount is lost",
            os.fspath(mountpoint),
        )


def _source(store: StoreDirectory) -> str:
    """The source that the mount table has for this store's mounts."""
    return SCHEME + urllib.parse.quote(os.fspath(store.directory))


def _unmount_abandoned(store: StoreDirectory, mountpoint: Path, *, force: bool = False) -> bool:
    """Unmount an abandoned mount of this store, whose processes were all killed.

    Args:
        force: also if there are mounts below it, or an unknown process holds its claim: the store may have been moved
            since.

    Returns:
        whether there was one.

    Raises:
        Conflict: there are mounts below it, or another process holds its claim.
    """
    if not _is_unserved(store, mountpoint):
        return False
    with ExitStack() as stack:
        try:
            stack.enter_context(claim_mountpoint(mountpoint))  # no mount between the check and the unmount
        except Conflict as error:
            if not force:
                raise MountInUse(str(error), os.fspath(mountpoint)) from error
        if not _is_unserved(store, mountpoint):
            return False
        if not force:
            _check_unused(mountpoint, served=False)
        mounts.unmount(mountpoint)
    return True


def _is_unserved(store: StoreDirectory, mountpoint: Path) -> bool:
    """Whether a workspace of this store is mounted at a path that is unknown to its mount service, if any."""
    try:
        return _is_of(store, mountpoint) and os.fspath(mountpoint) not in _served(store)
    except Unavailable:  # its server may recover
        return False


def _is_of(store: StoreDirectory, mountpoint: Path) -> bool:
    """Whether a workspace of this store is mounted at exactly a path, served or not."""
    return mountinfo.is_mounted(mountpoint) and mountinfo.source_of(mountpoint) == _source(store)


def _served(store: StoreDirectory) -> dict[str, dict[str, object]]:
    """Return the mounts of the mount service, by mountpoint; see `list_mounts`.

    Raises:
        Unavailable: it does not answer.
    """
    return _asked(store, lambda: {str(mount["mountpoint"]): mount for mount in list_mounts(store.socket)}, {})


def _asked(store: StoreDirectory, ask: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
    """Query the mount service. A starting one is waited for; so is an ending one, after which there is none.

    Args:
        ask: makes the calls; retried if the service ends under them.
        otherwise: the answer without a service.

    Raises:
        Unavailable: there is a service and it does not answer.
    """
    until = time.monotonic() + _ENDING_DEADLINE_S
    while True:
        with suppress(Ended):
            if launcher.is_running(store.socket) is not None:
                return ask()
        if not launcher.is_alive(store.socket):
            return otherwise
        if time.monotonic() > until:
            raise Unavailable(f"the process that serves the mounts of {store.name} does not answer; was it stopped?")
        time.sleep(_ENDING_POLL_S)


def _check_apart(store: StoreDirectory, mountpoint: Path) -> None:
    """Refuse a mountpoint in the store, and a store in the mountpoint: each would hide the other."""
    directory = store.directory.resolve()
    if mountpoint == directory or directory in mountpoint.parents or mountpoint in directory.parents:
        raise InvalidInput(f"{mountpoint} and the store {store.directory} lie one in the other; name another directory")


def attached(store: StoreDirectory, workspace: str) -> FuseWorkspace | None:
    """Return a workspace if it is mounted now.

    Raises:
        Unavailable: the mount service, or the mount, does not answer.
    """
    return _asked(store, lambda: attach_fuse_workspace(store.socket, workspace), None)


def mounted_at(store: StoreDirectory, mountpoint: Path) -> str:
    """Return the name of the workspace that is mounted at a path.

    Raises:
        NotFound: no workspace of this store is.
        Unavailable: the mount service does not answer.
    """
    mount = _served(store).get(os.fspath(mountpoint))
    if mount is not None:
        return str(mount["workspace_id"])
    store.check_present()
    raise NotFound(f"no workspace of {store.name} is mounted at {mountpoint}")
