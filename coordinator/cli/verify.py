"""``podium verify``: is everything as it was written?"""

from __future__ import annotations

from typing import Annotated

import typer

from coordinator.cli.exits import ExitCode
from coordinator.cli.options import DEFAULT_HOME, DebugOption, HomeOption, JsonOption
from coordinator.cli.progress import Progress
from coordinator.cli.record import find_agent, opened_blobs, read_journal
from coordinator.cli.terminal import one_line, write_json, write_line

__all__ = ["verify"]


def verify(
    agent: Annotated[
        str | None, typer.Argument(metavar="[AGENT]", help="Only this one, such as hello/alice.", show_default=False)
    ] = None,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """Check that everything is as it was written.

    The chain of events of every branch, and every blob that the files and histories of all turns reach, each read
    back and hashed. A home that was rewritten consistently, hashes and all, is not caught.
    """
    from coordinator.verification import Verifier  # noqa: PLC0415

    checks = []
    with read_journal(home) as store, opened_blobs(home) as blobs, Progress(lines=False) as progress:
        sessions = [find_agent(store, agent)] if agent is not None else store.sessions()
        verifier = Verifier(store, blobs)
        for number, session in enumerate(sessions, start=1):
            progress.show(f"checking {one_line(session.name)} ({number} of {len(sessions)})")
            check = verifier.check(session)
            checks.append(check)
            if not json:
                progress.clear()
                write_line(
                    f"{one_line(check.name)}: {check.events} events, {check.blobs} blobs: "
                    + ("good" if check.problem is None else f"BAD: {check.problem}")
                )
    bad = sum(check.problem is not None for check in checks)
    events, blobs_read = sum(check.events for check in checks), sum(check.blobs for check in checks)
    if json:
        write_json(
            {
                "ok": not bad,
                "events": events,
                "blobs": blobs_read,
                "agents": [
                    {
                        "agent": check.name,
                        "ok": check.problem is None,
                        "events": check.events,
                        "blobs": check.blobs,
                        "problem": check.problem,
                    }
                    for check in checks
                ],
            }
        )
    else:
        write_line(
            f"{events} events and {blobs_read} blobs checked: "
            + (f"{bad} of {len(checks)} agents are damaged" if bad else "all is as it was written")
        )
    if bad:
        raise typer.Exit(ExitCode.DAMAGED)
