"""The store, the workspace and the path that a command line names, or that the current directory implies."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.cli.options import DEFAULT_WORKSPACE
from chronicle.cli.output import say
from chronicle.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.server.client import FuseWorkspace
    from chronicle.repository import Repository
    from chronicle.workspace.committed.workspace import CommittedWorkspace
    from chronicle.workspace.layer.layer import Layer

__all__ = [
    "opened_workspace",
    "repository",
    "repository_at",
    "warn_if_incomplete",
    "workspace_name",
    "workspace_path",
]


def repository(store: str | None) -> Repository:
    """Return the named store, or that of the mount around the current directory.

    Raises:
        NotFound: no store was named, and the current directory is not in a mount.
        InvalidInput: the name is empty.
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
    """Return the named workspace, else the one mounted around the current directory, else `DEFAULT_WORKSPACE`.

    Args:
        store: the named store, if any.
        workspace: the named workspace, if any.

    Raises:
        Unavailable: the mount server did not say which workspace it serves.
    """
    if workspace is not None:
        return workspace
    here = _mounted_here(store)
    if here is None:
        return DEFAULT_WORKSPACE
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it
    from chronicle.repository import mounts as mounting  # noqa: PLC0415 - the help needs none of it

    return mounting.mounted_at(Repository.around(here[1]), here[0])


def workspace_path(store: str | None, path: str) -> str:
    """Return a path of the command line relative to the workspace's root; ``""`` for the root itself.

    In a mount of the store a path is relative to the current directory, or absolute below the mountpoint; elsewhere it
    is relative to the root. ``.``, ``..`` and trailing slashes are resolved lexically.

    Args:
        store: the named store, if any.

    Raises:
        InvalidInput: the path is outside of the workspace.
    """
    if not path:
        raise InvalidInput("a path cannot be empty; '.' is this directory")
    here = _mounted_here(store)
    if here is None:
        if path.startswith("/"):
            raise InvalidInput(f"{path!r} is not a path in a workspace: without a mount, paths begin at its root")
        clean = os.path.normpath(path)
    else:
        point, cwd = here
        whole = Path(os.path.normpath(cwd / path))
        if path.startswith("/") and not whole.is_relative_to(point):  # A symlink may lead there.
            whole = Path(os.path.realpath(whole.parent)) / whole.name
        if not whole.is_relative_to(point):
            raise InvalidInput(f"{path!r} is not in the workspace that is mounted at {point}")
        clean = os.fspath(whole.relative_to(point))
    if clean.split("/")[0] == "..":
        raise InvalidInput(f"{path!r} is outside of the workspace; without a mount, paths begin at its root")
    return "" if clean == "." else clean


def _mounted_here(store: str | None) -> tuple[Path, Path] | None:
    """Return the mountpoint around the current directory, and that directory; ``None`` outside of a mount.

    Args:
        store: only mounts of this store count; of any store by default.
    """
    from chronicle.fuse.mountpoints import mountinfo  # noqa: PLC0415 - the help needs none of it
    from chronicle.repository import Repository  # noqa: PLC0415

    try:
        cwd = Path.cwd()
        around = Repository.around(cwd)
    except (OSError, NotFound):  # The directory was removed, or is not in a mount.
        return None
    if store is not None and repository_at(store).directory.resolve() != around.directory.resolve():
        return None
    point = mountinfo.mountpoint_of(cwd)
    return (point, cwd) if point is not None else None


@contextmanager
def opened_workspace(store: str | None, workspace: str) -> Iterator[FuseWorkspace | Layer | CommittedWorkspace]:
    """Open a workspace for reading; warn if its uncommitted changes cannot be read."""
    place = repository(store)
    with place.opened(workspace) as opened:
        warn_if_incomplete(place, workspace)
        yield opened


def warn_if_incomplete(place: Repository, workspace: str) -> bool:
    """Warn if a workspace may have uncommitted changes that cannot be read, because the store is read-only.

    Returns:
        whether it warned.
    """
    if not place.is_unseen(workspace):
        return False
    say("the store is read-only, so changes since the last commit cannot be read")
    return True
