"""The options that commands share, and opening what they name."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chronicle.cli.output import say
from chronicle.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.server.client import FuseWorkspace
    from chronicle.repository import Repository
    from chronicle.workspace.committed.workspace import CommittedWorkspace
    from chronicle.workspace.layer.layer import Layer

__all__ = [
    "MAIN",
    "JsonOption",
    "PathArgument",
    "StoreOption",
    "WorkspaceOption",
    "directory_at",
    "reading",
    "repository",
    "repository_at",
    "tell_unseen",
    "workspace_name",
    "workspace_path",
]

MAIN: Final = "main"
"""The workspace that is meant when none is named."""

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="CHRONICLE_STORE", metavar="STORE", help="A directory or URL; default: that of this mount."
    ),
]
WorkspaceOption = Annotated[
    str | None,
    typer.Option("--workspace", "-w", metavar="NAME", help="Of the store; default: that of this mount, else 'main'."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="From here in a mount, else from the root.")]


def directory_at(text: str) -> Path:
    """Return a directory of the command line; for the parsers of arguments.

    Raises:
        InvalidInput: it is empty.
    """
    if not text:
        raise InvalidInput("a directory's name cannot be empty; '.' is the current one")
    return Path(text)


def repository(store: str | None) -> Repository:
    """Return the store that was named, or that of the mount in which the command runs.

    Raises:
        NotFound: none was named, and this is in no mount.
        InvalidInput: its name is empty.
    """
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it

    return repository_at(store) if store is not None else Repository.around(Path.cwd())


def repository_at(store: str) -> Repository:
    """Return the store at a path or URL.

    Raises:
        InvalidInput: its name is empty.
    """
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it

    if not store:
        raise InvalidInput("a store's name cannot be empty; name a directory or a URL")
    return Repository.at(store)


def workspace_name(store: str | None, workspace: str | None) -> str:
    """Return the workspace that was named, or the one in whose mount the command runs, or else `MAIN`.

    Args:
        store: the store that was named, if one was.
        workspace: the workspace, if one was.

    Raises:
        Unavailable: which workspace is mounted here cannot be found out.
    """
    if workspace is not None:
        return workspace
    here = _mounted_here(store)
    if here is None:
        return MAIN
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it
    from chronicle.repository import mounts as mounting  # noqa: PLC0415 - the help needs none of it

    return mounting.mounted_at(Repository.around(here[1]), here[0])


def workspace_path(store: str | None, path: str) -> str:
    """Return a path of the command line relative to the workspace's root; ``""`` for the root itself.

    In a mount of the store a path is relative to the current directory, or absolute below the mountpoint; elsewhere it
    is relative to the root. ``.``, ``..`` and slashes at the end are taken out by the names alone.

    Args:
        store: the one that was named, if one was.

    Raises:
        InvalidInput: it leads out of the workspace.
    """
    if not path:
        raise InvalidInput("a path cannot be empty; '.' is this directory")
    here = _mounted_here(store)
    if here is None:
        if path.startswith("/"):
            raise InvalidInput(f"{path!r} is not a path in a workspace: outside of a mount they begin at its root")
        clean = os.path.normpath(path)
    else:
        point, cwd = here
        whole = Path(os.path.normpath(cwd / path))
        if path.startswith("/") and not whole.is_relative_to(point):  # it may lead there by a symlink
            whole = Path(os.path.realpath(whole.parent)) / whole.name
        if not whole.is_relative_to(point):
            raise InvalidInput(f"{path!r} is not in the workspace that is mounted at {point}")
        clean = os.fspath(whole.relative_to(point))
    if clean.split("/")[0] == "..":
        raise InvalidInput(f"{path!r} leads out of the workspace; outside of a mount paths begin at its root")
    return "" if clean == "." else clean


def _mounted_here(store: str | None) -> tuple[Path, Path] | None:
    """Return the mountpoint that the current directory is in, and that directory; ``None`` if it is in none of these.

    Args:
        store: whose mounts count; any, if none was named.
    """
    from chronicle.fuse.mountpoints import mountinfo  # noqa: PLC0415 - the help needs none of it
    from chronicle.repository import Repository  # noqa: PLC0415

    try:
        cwd = Path.cwd()
        around = Repository.around(cwd)
    except (OSError, NotFound):  # it is removed, or is elsewhere
        return None
    if store is not None and repository_at(store).directory.resolve() != around.directory.resolve():
        return None
    point = mountinfo.mountpoint_of(cwd)
    return (point, cwd) if point is not None else None


@contextmanager
def reading(store: str | None, workspace: str) -> Iterator[FuseWorkspace | Layer | CommittedWorkspace]:
    """Open a workspace to read it, and say so if that is not all of it."""
    place = repository(store)
    with place.opened(workspace) as opened:
        tell_unseen(place, workspace)
        yield opened


def tell_unseen(place: Repository, workspace: str) -> bool:
    """Say so if a workspace may hold what was not committed, and the store cannot be written to see it.

    Returns:
        whether it is so.
    """
    if not place.is_unseen(workspace):
        return False
    say("the store cannot be written, so what was changed since the last commit cannot be read")
    return True
