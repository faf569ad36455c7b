"""The options that commands share, and opening what they name."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chronicle.fuse.client import FuseWorkspace
    from chronicle.repository import Repository
    from chronicle.workspace.committed import CommittedWorkspace
    from chronicle.workspace.layer import Layer

__all__ = ["JsonOption", "PathArgument", "StoreOption", "WorkspaceOption", "reading", "repository", "repository_at"]

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", envvar="CHRONICLE_STORE", metavar="STORE", help="A directory or URL; default: that of this mount."
    ),
]
WorkspaceOption = Annotated[
    str, typer.Option("--workspace", "-w", metavar="NAME", help="Which workspace of the store.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="Relative to the workspace's root.")]


def repository(store: str | None) -> Repository:
    """Return the store that was named, or that of the mount in which the command runs."""
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it

    return Repository.at(store) if store is not None else Repository.around(Path.cwd())


def repository_at(store: str) -> Repository:
    """Return the store at a path or URL."""
    from chronicle.repository import Repository  # noqa: PLC0415 - the help needs none of it

    return Repository.at(store)


@contextmanager
def reading(store: str | None, workspace: str) -> Iterator[FuseWorkspace | Layer | CommittedWorkspace]:
    """Open a workspace to read it, and say so if that is not all of it."""
    from chronicle.workspace.committed import CommittedWorkspace  # noqa: PLC0415 - the help needs none of it

    with repository(store).opened(workspace) as opened:
        if isinstance(opened, CommittedWorkspace) and not opened.complete:
            say("the store cannot be written, so what was changed since the last commit cannot be read")
        yield opened
