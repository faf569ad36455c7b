"""``chronicle history``, ``cat`` and ``diff``: reading versions and comparing moments."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated, Final

import typer

from chronicle.cli.options import JsonOption, PathArgument, StoreOption, WorkspaceOption
from chronicle.cli.output import say, write, write_json
from chronicle.cli.targets import opened_workspace, repository, warn_if_incomplete, workspace_name, workspace_path
from chronicle.cli_kit.terminal import write_lines
from chronicle.cli_kit.times import iso

__all__ = ["cat", "diff", "history"]

_PIECE: Final = 1024 * 1024


def history(
    path: PathArgument,
    *,
    store: StoreOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the versions of a path, oldest first.

    Uncommitted versions are listed, too. In a mount the path is relative to the current directory, or absolute;
    elsewhere it is relative to the workspace's root.
    """
    inside = workspace_path(store, path)
    with opened_workspace(store, workspace_name(store, workspace)) as opened:
        versions = opened.history(inside)
    if as_json:
        write_json([version.as_json() for version in versions])
        return
    for version in versions:
        source = f"  from {version.source}" if version.source is not None else ""
        mode = f"{version.mode:04o}" if version.mode is not None else ""
        what = f"{version.op:<8} {mode:<4} {version.size:>10}  {version.hash[:12]:<12}  turn {version.turn}{source}"
        write(f"{version.iteration:>5}  {iso(version.timestamp)}  {what}")


def cat(
    moment: Annotated[str, typer.Argument(metavar="PATH[@ITERATION]", help="Without an iteration, the last one.")],
    *,
    store: StoreOption = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Write one version of a file to stdout.

    In a mount the path is relative to the current directory, or absolute; elsewhere it is relative to the workspace's
    root.
    """
    path, _, number = moment.rpartition("@")
    if not path or not number.isdecimal():
        path, number = moment, ""
    path = workspace_path(store, path)
    with opened_workspace(store, workspace_name(store, workspace)) as opened:
        iteration = int(number) if number else opened.history(path)[-1].iteration
        with opened.at(path, iteration) as version:
            shutil.copyfileobj(version, sys.stdout.buffer, _PIECE)
    sys.stdout.buffer.flush()


def diff(
    before: Annotated[
        str, typer.Argument(metavar="[A]", help="A commit, such as 3 or @3; default: the last one.")
    ] = "last",
    after: Annotated[
        str, typer.Argument(metavar="[B]", help="Another one; default: now, uncommitted changes included.")
    ] = "now",
    *,
    stat: Annotated[bool, typer.Option("--stat", help="Numbers of changed lines instead of the changes.")] = False,
    names: Annotated[bool, typer.Option("--names", help="Names and kinds of change only.")] = False,
    store: StoreOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the changes from one moment to another.

    As a unified diff; binary and huge files are only named, and all paths begin at the workspace's root. A moment is
    the number of a commit, 0 for the time before the first one, 'last', or 'now'.
    """
    from chronicle.cli import changes  # noqa: PLC0415 - the help needs none of it
    from chronicle.repository.commit_log import NOW, parse_moment  # noqa: PLC0415
    from chronicle.workspace.trees.tree_diff import change_object, render  # noqa: PLC0415

    place, name = repository(store), workspace_name(store, workspace)
    with place.compared(name, before, after) as (reader, found):
        unseen = NOW in (parse_moment(before), parse_moment(after)) and warn_if_incomplete(place, name)
        counted = changes.stat(reader, found) if stat else None
        if as_json:
            files = [change_object(change) for change in found]
            for file, row in zip(files, counted.rows if counted is not None else (), strict=counted is not None):
                file["added_lines"], file["removed_lines"] = row[1:]
            described: dict[str, object] = {"before": before.lstrip("@"), "after": after.lstrip("@"), "files": files}
            if not stat and not names:
                described["diff"] = b"".join(render(reader, found)).decode("utf-8", "backslashreplace")
            write_json(described)
        elif counted is not None or names:
            for line in counted.lines() if counted is not None and found else changes.names(found):
                write(line)
        else:
            write_lines(render(reader, found), write)
        if not found and not as_json:
            say("nothing differs in what is committed" if unseen else "nothing differs")
