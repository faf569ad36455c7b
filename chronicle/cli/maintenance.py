"""``chronicle verify``, ``gc`` and ``stats``: operations on a whole store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from chronicle.cli.exits import ExitCode
from chronicle.cli.options import JsonOption, StoreOption, WorkspaceOption
from chronicle.cli.output import say, write, write_json
from chronicle.cli.targets import repository, warn_if_incomplete, workspace_name
from chronicle.cli_kit.changes import gc_summary
from chronicle.cli_kit.times import iso

__all__ = ["gc", "stats", "verify"]


def verify(*, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check all stored data against its hashes.

    That is the chain of commits of each workspace, and every blob that they reach, read back and hashed.
    """
    from chronicle.repository import maintenance  # noqa: PLC0415 - the help needs none of it

    checks = []
    for check in maintenance.verify(repository(store)):
        checks.append(check)
        if not as_json:
            verdict = "good" if check.problem is None else f"BAD: {check.problem}"
            write(f"{check.workspace}: {check.events} events, {check.blobs} blobs: {verdict}")
    if as_json:
        write_json([asdict(check) for check in checks])
    if any(check.problem is not None for check in checks):
        raise typer.Exit(ExitCode.DAMAGED)


def gc(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Free it at once; nothing may be mounted meanwhile.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Free blobs that no commit needs. Every version of every committed file is needed.

    Safe while workspaces are in use: one call condemns what is not needed; another one, an hour or more later, frees
    what is still not needed.
    """
    from chronicle.repository import maintenance  # noqa: PLC0415 - the help needs none of it

    report = maintenance.collect_garbage(repository(store), alone=now, dry_run=dry_run)
    for damage in report.damaged:
        say(f"chronicle: {damage}")
    if as_json:
        write_json(asdict(report))
        return
    write(gc_summary(report))
    if report.ripe_ms is not None and not now:
        say(f"what is condemned can be freed from {iso(report.ripe_ms)} on: chronicle gc")
    if dry_run:
        say("nothing was changed (--dry-run)")


def stats(*, store: StoreOption = None, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show the counts of a workspace, and the size of its store."""
    from chronicle.repository import maintenance  # noqa: PLC0415 - the help needs none of it

    place, name = repository(store), workspace_name(store, workspace)
    counted = maintenance.count(place, name)
    warn_if_incomplete(place, name)
    if as_json:
        write_json(asdict(counted))
        return
    write(f"commits        {counted.commits}")
    write(f"files          {counted.files}  (in the last commit)")
    write(f"logical bytes  {counted.logical_bytes}  (of those files)")
    write(f"history bytes  {counted.history_bytes}  (of the files of all commits)")
    write(f"blobs          {counted.blobs}  (all workspaces of the store, each once)")
    write(f"unique bytes   {counted.unique_bytes}  (of those blobs)")
    write(f"stored bytes   {counted.stored_bytes}  (what they take)")
    write(f"layer bytes    {counted.layer_bytes}  (on this node besides: not committed yet, or kept to be read fast)")
