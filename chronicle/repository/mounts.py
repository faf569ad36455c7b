"""What is done with the mounts of a store."""

from __future__ import annotations

import math
import os
import time
import urllib.parse
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar, cast

from chronicle.errors import ChronicleError, Conflict, InvalidInput, NotFound, Unavailable
from chronicle.fuse import available
from chronicle.fuse.control import Ended
from chronicle.fuse.mountpoints import availability, mountinfo, mounts, users
from chronicle.fuse.mountpoints.claim import claim_mountpoint
from chronicle.fuse.server.client import attach_fuse_workspace, list_mounts, open_fuse_workspace, unmount_workspace
from chronicle.fuse.zygote import zygote
from chronicle.repository import commit_writer
from chronicle.repository.store_directory import SCHEME
from chronicle.workspace.layer.opening import check_spec
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
"""For a mount service to end when its last mount is gone, some ten milliseconds, or to be up, usually half a second; it
kills a server that does not end after five."""
_ENDING_POLL_S: Final = 0.005
_NAMED: Final = 5
"""How many of those who use a mount are named, at most."""


def mount(
    place: StoreDirectory,
    workspace: str,
    mountpoint: Path,
    *,
    with_caller: bool,
    quota: Quota | None = None,
    transport: Transport = availability.DEFAULT_TRANSPORT,
) -> Path:
    """Mount a workspace; it is made if it is not there, and so is the store. What is refused makes nothing.

    Args:
        with_caller: unmount when the calling process ends.
        quota: how much the workspace may hold while it is mounted.
        transport: how the mount speaks to the kernel; the store's mounts that are there keep theirs.

    Returns:
        the mountpoint, absolute and without symlinks.

    Raises:
        Unavailable: FUSE cannot be used here, or mounting failed.
        Conflict: the workspace is mounted, or another process has it open; something is mounted there already.
        InvalidInput: the mountpoint or the name cannot be used.
    """
    reason = available(transport)
    if reason is not None:
        raise Unavailable(reason)
    check_spec(LayerSpec(workspace, place.layers, None, commit_writer.EPOCH, 1))
    mountpoint = mountinfo.resolve_mountpoint(mountpoint)
    _check_apart(place, mountpoint)
    _unmount_abandoned(place, mountpoint)
    mounts.check_mountpoint(mountpoint)
    _check_unmounted(place, workspace)
    place.create()
    with place.busy(), place.queue(workspace):
        _check_unmounted(place, workspace)  # someone else may have been faster
        with place.journal(workspace, new=True) as journal:
            session = commit_writer.ensure_session(place, journal, workspace)
            spec = replace(commit_writer.spec_of(place, journal, session), quota=quota)
        _mount(place, spec, mountpoint, with_caller=with_caller, transport=transport)
    return mountpoint


def _check_unmounted(place: StoreDirectory, workspace: str) -> None:
    mounted = attached(place, workspace)
    if mounted is not None:
        mounted.detach()
        raise Conflict(f"workspace {workspace!r} is mounted at {mounted.root} already; unmount it first")


def _mount(
    place: StoreDirectory, spec: LayerSpec, mountpoint: Path, *, with_caller: bool, transport: Transport
) -> None:
    try:
        opened = _ordered(place, spec, mountpoint, with_caller=with_caller, transport=transport)
        workspace = cast("FuseWorkspace", opened.workspace)
        try:
            commit_writer.keep_recovered(place, spec, opened.recovered, workspace.begin_turn)
        except BaseException:
            with suppress(ChronicleError):
                unmount_workspace(place.socket, mountpoint)
            raise
        finally:
            workspace.detach()
    except BaseException:
        # It ends by itself when a mount is gone, but there may never have been one.
        with suppress(Unavailable):
            zygote.shut_down(place.socket, unused=True)
        raise


def _ordered(
    place: StoreDirectory, spec: LayerSpec, mountpoint: Path, *, with_caller: bool, transport: Transport
) -> Opened:
    """Have the mount service mount a workspace; start it if there is none, and again if the order met one that ends."""
    run = place.socket.parent
    until = math.inf
    while True:
        service = zygote.start(
            place.socket,
            run / "mounts",
            run / "log",
            transport=transport,
            until_idle=True,
            blobs_url=place.blobs_url,
        )
        try:
            with place.whole(spec.workspace_id):
                return open_fuse_workspace(
                    place.socket, spec, place.blobs_url, mountpoint, with_caller=with_caller, source=_source(place)
                )
        except Ended:
            until = min(until, time.monotonic() + _ENDING_DEADLINE_S)
            # If it was killed over the order, the server that it may have forked unmounts before it ends.
            while time.monotonic() < until and (_is_ending(place, service) or _is_of(place, mountpoint)):
                time.sleep(_ENDING_POLL_S)
            if time.monotonic() >= until:
                raise


def _is_ending(place: StoreDirectory, service: int) -> bool:
    """Say whether a mount service, given its process id, is there still, and not another one in its place by now."""
    return zygote.is_alive(place.socket) and zygote.is_running(place.socket) in (None, service)


def unmount(place: StoreDirectory, mountpoint: Path, *, force: bool = False) -> None:
    """Unmount a workspace; what was written and not committed stays in the store.

    Args:
        force: also if programs use it: what they write from then on is lost, as they are told by errors. What is
            mounted below it goes with it.

    Raises:
        NotFound: nothing of this store is mounted there; or its directory is gone, and it is not to be forced.
        Conflict: programs use it, something is mounted below it, or another command on it takes too long.
        Unavailable: whoever has it mounted does not answer, and it is not to be forced.
    """
    mountpoint = mountinfo.resolve_mountpoint(mountpoint)
    if not force:
        place.check_kept()
    try:
        served = _served(place)
    except Unavailable as error:
        if not force:
            _check_unused(mountpoint, served=True)
            raise Unavailable(f"{error}; chronicle unmount --force unmounts without it") from error
        mounts.unmount(mountpoint)
        return
    if os.fspath(mountpoint) not in served:
        if not _unmount_abandoned(place, mountpoint, force=force):
            raise NotFound(f"nothing of {place.name} is mounted at {mountpoint}")
        return
    workspace = served[os.fspath(mountpoint)]["workspace_id"]
    try:
        if force:
            unmount_workspace(place.socket, mountpoint)
            return
        with place.queue(str(workspace)):  # commands that commit or compare it end in peace
            mount_now = _served(place).get(os.fspath(mountpoint), {})
            if mount_now.get("workspace_id") == workspace:
                _check_unused(mountpoint, served=True)
                unmount_workspace(place.socket, mountpoint)
                return
    except Ended:  # with its last mount, which someone else unmounted; or it was killed, and this one is still there
        pass
    unmount(place, mountpoint, force=force)  # what is there now


def _check_unused(mountpoint: Path, *, served: bool) -> None:
    """Refuse to take away what is in use.

    Args:
        served: whether programs can write there. If not, it does not matter who has what open.
    """
    found = users.mounted_below(mountpoint)
    if served:
        found += users.users_of(mountpoint)
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise Conflict(
            f"{mountpoint} is in use: {'; '.join(found[:_NAMED])}{more}. End that first; chronicle unmount --force "
            "unmounts it all the same, and what programs write there later is lost"
        )


def _source(place: StoreDirectory) -> str:
    """What the system shows as the device of this store's mounts."""
    return SCHEME + urllib.parse.quote(os.fspath(place.directory))


def _unmount_abandoned(place: StoreDirectory, mountpoint: Path, *, force: bool = False) -> bool:
    """Unmount what is left of a mount of this store whose processes were all killed, so that nobody serves it.

    Args:
        force: also if something is mounted below it, or somebody has it who is not known here: the store may have been
            moved since.

    Returns:
        whether there was one.

    Raises:
        Conflict: something is mounted below it, or somebody has it.
    """
    if not _is_unserved(place, mountpoint):
        return False
    with ExitStack() as stack:
        try:
            stack.enter_context(claim_mountpoint(mountpoint))  # nobody mounts there between the look and the unmounting
        except Conflict as error:
            if not force:
                raise Conflict(f"{error}; chronicle unmount --force unmounts it all the same") from error
        if not _is_unserved(place, mountpoint):
            return False
        if not force:
            _check_unused(mountpoint, served=False)
        mounts.unmount(mountpoint)
    return True


def _is_unserved(place: StoreDirectory, mountpoint: Path) -> bool:
    """Say whether a workspace of this store is mounted at a path that its mount service, if there is one, has not."""
    try:
        return _is_of(place, mountpoint) and os.fspath(mountpoint) not in _served(place)
    except Unavailable:  # whoever serves it may go on
        return False


def _is_of(place: StoreDirectory, mountpoint: Path) -> bool:
    """Say whether a workspace of this store is mounted at exactly a path, served or not."""
    return mountinfo.is_mounted(mountpoint) and mountinfo.source_of(mountpoint) == _source(place)


def _served(place: StoreDirectory) -> dict[str, dict[str, object]]:
    """Return what the mount service has mounted, by mountpoint; see `list_mounts`.

    Raises:
        Unavailable: it does not answer.
    """
    return _asked(place, lambda: {str(mount["mountpoint"]): mount for mount in list_mounts(place.socket)}, {})


def _asked(place: StoreDirectory, ask: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
    """Ask the mount service. One that is ending is waited for, and then there is none; so is one that is starting.

    Args:
        ask: makes the calls; made again if it ends under them.
        otherwise: the answer if there is none.

    Raises:
        Unavailable: there is one and it does not answer.
    """
    until = time.monotonic() + _ENDING_DEADLINE_S
    while True:
        with suppress(Ended):
            if zygote.is_running(place.socket) is not None:
                return ask()
        if not zygote.is_alive(place.socket):
            return otherwise
        if time.monotonic() > until:
            raise Unavailable(f"the process that serves the mounts of {place.name} does not answer; was it stopped?")
        time.sleep(_ENDING_POLL_S)


def _check_apart(place: StoreDirectory, mountpoint: Path) -> None:
    """Refuse a mountpoint in the store, and a store in the mountpoint: each would hide the other."""
    store = place.directory.resolve()
    if mountpoint == store or store in mountpoint.parents or mountpoint in store.parents:
        raise InvalidInput(f"{mountpoint} and the store {place.directory} lie one in the other; name another directory")


def attached(place: StoreDirectory, workspace: str) -> FuseWorkspace | None:
    """Return a workspace if it is mounted now.

    Raises:
        Unavailable: the mount service, or the mount, does not answer.
    """
    return _asked(place, lambda: attach_fuse_workspace(place.socket, workspace), None)


def mounted_at(place: StoreDirectory, mountpoint: Path) -> str:
    """Return the workspace that is mounted at a place.

    Raises:
        NotFound: none of this store's is.
        Unavailable: the mount service does not answer.
    """
    mount = _served(place).get(os.fspath(mountpoint))
    if mount is not None:
        return str(mount["workspace_id"])
    place.check_kept()
    raise NotFound(f"no workspace of {place.name} is mounted at {mountpoint}")
