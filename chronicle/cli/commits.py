"""``chronicle commit``, ``log``, ``fork`` and ``restore``: making commits, and returning to them."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli.options import JsonOption, StoreOption, WorkspaceOption
from chronicle.cli.output import commit_object, say, write, write_json
from chronicle.cli.targets import repository, warn_if_incomplete, workspace_name, workspace_path
from chronicle.cli_kit.times import iso
from chronicle.errors import InvalidInput

__all__ = ["commit", "fork", "log", "restore"]


def commit(
    *,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Description of the commit.")],
    store: StoreOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Commit the content of the workspace, mounted or not. Without a change there is no commit."""
    if not message.strip():
        raise InvalidInput("the message is empty; describe the commit: chronicle commit -m TEXT")
    done = repository(store).commit(workspace_name(store, workspace), message)
    if as_json:
        write_json(commit_object(done) if done is not None else None)
    else:
        write(f"commit {done.turn}  {done.ref.tree_id}" if done is not None else "nothing changed")


def log(*, store: StoreOption = None, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the commits, oldest first."""
    place, name = repository(store), workspace_name(store, workspace)
    commits = place.commits(name)
    warn_if_incomplete(place, name)
    if as_json:
        write_json([commit_object(item) for item in commits])
        return
    for item in commits:
        write(f"{item.turn:>5}  {iso(item.timestamp)}  {item.ref.tree_id[:12]}  {item.message}")


def fork(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new workspace.")],
    moment: Annotated[
        str, typer.Argument(metavar="[@MOMENT]", help="The commit to continue from; default: the last one.")
    ] = "last",
    *,
    store: StoreOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a workspace that continues this one from a commit. Nothing is copied, whatever its size."""
    source = workspace_name(store, workspace)
    found = repository(store).fork(source, moment, name)
    number = found.turn if found is not None else 0
    if as_json:
        tree_id = found.ref.tree_id if found is not None else None
        write_json({"workspace": name, "from": {"workspace": source, "turn": number}, "tree_id": tree_id})
    else:
        write(f"{name} continues {source}@{number}")


def restore(
    what: Annotated[
        list[str], typer.Argument(metavar="[PATH] @MOMENT", help="A path, everything by default, and the moment.")
    ],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    store: StoreOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a path, or everything, to a commit.

    @3 is commit 3, @last the last one. In a mount the path is relative to the current directory, or absolute; elsewhere
    it is relative to the workspace's root, and nothing need be mounted.

    The content before the restore stays in the history, and can be restored in the same way once it is committed. The
    restore is not committed. Programs that have the files open keep reading their current content.
    """
    *paths, moment = what
    if len(paths) > 1:
        raise InvalidInput(f"one path at a time, and then the commit: restore {paths[0]} @3")
    if not moment.startswith("@"):
        raise InvalidInput(f"{moment!r} names no commit to go back to; write it with an @, such as @3 or @last")
    path = workspace_path(store, paths[0]) if paths else ""
    found = repository(store).restore(workspace_name(store, workspace), moment, path, dry_run=dry_run)
    if as_json:
        from chronicle.workspace.trees.tree_diff import change_object  # noqa: PLC0415 - the help needs none of it

        write_json(
            {"moment": moment, "path": path, "dry_run": dry_run, "files": [change_object(item) for item in found]}
        )
        return
    from chronicle.cli.changes import names  # noqa: PLC0415 - the help needs none of it

    for line in names(found):
        write(line)
    if not found:
        say("nothing differs")
    elif dry_run:
        say("nothing was changed (--dry-run)")
