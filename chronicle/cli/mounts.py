"""``chronicle mount``, ``unmount`` and ``checkout``: making the files of a workspace available."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from chronicle.cli.exits import ExitCode
from chronicle.cli.options import DEFAULT_WORKSPACE, JsonOption, parse_directory
from chronicle.cli.output import commit_object, say, write_json
from chronicle.cli.targets import repository_at
from chronicle.cli_kit.transfer import TransferProgress
from chronicle.errors import InvalidInput, NotFound
from chronicle.fuse.mountpoints.availability import DEFAULT_TRANSPORT, Transport
from chronicle.settings import TRANSPORT_VARIABLE

if TYPE_CHECKING:
    from chronicle.repository import Repository
    from chronicle.workspace.dir.restore import LeftOut

__all__ = ["checkout", "mount", "unmount"]

NameOption = Annotated[str, typer.Option("--workspace", "-w", metavar="NAME", help="A workspace of the store.")]

_FOREGROUND_POLL_S: Final = 0.5
_NAMED: Final = 3
"""Skipped owners and devices that a message names."""
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)(i?b)?", re.IGNORECASE | re.ASCII)
_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_LARGEST: Final = 2**63 - 1
"""The largest offset of a file in bytes, as system calls take it."""


def _size(text: str | None) -> int | None:
    """Read a number of bytes such as ``500``, ``1.5M`` or ``2GiB``; K, M, G and T are powers of 1024."""
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or ("." in found[1] and not found[2]):
        raise InvalidInput(f"{text!r} is not a size: give bytes, or a number with K, M, G or T, such as 500M or 1.5G")
    size = int(Fraction(found[1]) * 1024 ** _UNITS[found[2].lower()])
    if size > _LARGEST:
        raise InvalidInput(f"{text!r} is more than a file system can hold; omit the option for no limit")
    return size


def mount(
    store: Annotated[
        str,
        typer.Argument(
            metavar="STORE", help="A directory or a URL (s3://bucket/prefix); created if it does not exist."
        ),
    ],
    mountpoint: Annotated[
        Path, typer.Argument(metavar="MOUNTPOINT", parser=parse_directory, help="An empty directory; created likewise.")
    ],
    *,
    workspace: NameOption = DEFAULT_WORKSPACE,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay until Ctrl-C, then unmount.")] = False,
    quota_bytes: Annotated[
        str | None,
        typer.Option("--quota-bytes", metavar="SIZE", help="Limit of the bytes of all files, such as 500M."),
    ] = None,
    quota_files: Annotated[
        int | None,
        typer.Option(
            "--quota-files", metavar="N", min=0, max=_LARGEST, help="Limit of the number of files and directories."
        ),
    ] = None,
    quota_file_size: Annotated[
        str | None, typer.Option("--quota-file-size", metavar="SIZE", help="Limit of the size of one file.")
    ] = None,
    transport: Annotated[
        Transport,
        typer.Option("--transport", envvar=TRANSPORT_VARIABLE, help="The driver between the mount and the kernel."),
    ] = DEFAULT_TRANSPORT,
) -> None:
    """Mount a workspace. Written data is kept in the store immediately; `chronicle commit` commits it.

    Quotas apply while it is mounted; old versions do not count. Without the options there is no limit.
    """
    from chronicle.repository import mounts  # noqa: PLC0415 - the help needs none of it
    from chronicle.workspace.port import Quota  # noqa: PLC0415

    quota = Quota(_size(quota_bytes), quota_files, _size(quota_file_size))
    repository = repository_at(store)
    limits = quota if quota != Quota() else None
    point = mounts.mount(repository, workspace, mountpoint, with_caller=foreground, quota=limits, transport=transport)
    say(f"{workspace} of {repository.name} is mounted at {point}")
    if foreground:
        _stay(repository, point)


def checkout(
    source: Annotated[
        str, typer.Argument(metavar="STORE[@TURN]", help="A store and one of its commits; default: the last one.")
    ],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", parser=parse_directory, help="A new or empty directory for the files.")
    ],
    *,
    workspace: NameOption = DEFAULT_WORKSPACE,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show the progress; by default on a terminal.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a commit's files into a plain directory. It appears when it is complete.

    Only root can restore owners and devices: for other users all files are their own, and devices are left out.
    """
    store, number = _store_and_moment(source)
    repository = repository_at(store)
    with TransferProgress() as line:
        shown = progress if progress is not None else sys.stderr.isatty()
        done, left_out = repository.checkout(workspace, number, directory, line if shown else None)
    owners = [item for item in left_out if item.what == "owner"]
    devices = [item for item in left_out if item.what == "device"]
    if as_json:
        rows = [{"path": os.fsdecode(item.path), "what": item.what, "is": item.detail} for item in left_out]
        write_json({**commit_object(done), "left_out": rows})
    else:
        say(f"commit {done.turn} of {workspace} is in {os.path.realpath(directory)}")
    if owners:
        say(f"only root may restore owners, so yours are now {_few(owners)}")
    if devices:
        say(f"chronicle: only root may make devices, so there is no {_few(devices)}")
        raise typer.Exit(ExitCode.OS_ERROR)


def _few(left_out: list[LeftOut]) -> str:
    """Name the first of the skipped entries."""
    named = ", ".join(f"{os.fsdecode(item.path)} ({item.detail})" for item in left_out[:_NAMED])
    return named + (f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else "")


def _store_and_moment(source: str) -> tuple[str, str]:
    """Split ``STORE[@TURN]``; an ``@`` may be part of the store's name as well."""
    store, at, moment = source.rpartition("@")
    if not at or not store or "/" in moment or Path(source).exists():
        return source, "last"
    if not moment:
        raise InvalidInput(f"{source!r} names no commit after the @; write {store}@3, or {store} for the last one")
    return store, moment


def unmount(
    mountpoint: Annotated[Path, typer.Argument(metavar="MOUNTPOINT", parser=parse_directory)],
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also while programs use it: their later writes are lost."),
    ] = False,
) -> None:
    """Unmount a workspace that is not in use.

    Uncommitted changes stay in the store, and are there again after the next mount. If programs have files open or
    their working directory in it, or something is mounted below it, nothing is done, and the command names them.
    """
    # The help needs none of these.
    from chronicle.fuse.mountpoints.mountinfo import is_mounted, resolve_mountpoint  # noqa: PLC0415
    from chronicle.repository import Repository, mounts  # noqa: PLC0415

    point = resolve_mountpoint(mountpoint)
    if not is_mounted(point):
        raise NotFound(f"nothing is mounted at {mountpoint}; `findmnt -t fuse.chronicle` lists what is")
    try:
        repository = Repository.around(point)
    except NotFound:
        raise NotFound(f"the mount at {point} is not a workspace of a store; umount unmounts it") from None
    mounts.unmount(repository, point, force=force)


def _stay(repository: Repository, mountpoint: Path) -> None:
    """Wait until the workspace is unmounted, or this process is interrupted."""
    from chronicle.fuse.mountpoints.mountinfo import is_mounted  # noqa: PLC0415 - the help needs none of it
    from chronicle.repository import mounts  # noqa: PLC0415

    def end(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    try:
        while is_mounted(mountpoint):
            time.sleep(_FOREGROUND_POLL_S)
    except KeyboardInterrupt:
        mounts.unmount(repository, mountpoint, force=True)  # The mount ends with this process, even if it is in use.
