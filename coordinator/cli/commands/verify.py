"""``podium verify``: checking stored data against its hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.hints import with_hint
from chronicle.cli_kit.progress import Progress
from chronicle.cli_kit.terminal import one_line, write_json, write_line
from chronicle.cli_kit.times import iso
from chronicle.errors import Corrupt
from coordinator.cli.exits import ExitCode
from coordinator.cli.hints import hint
from coordinator.cli.lookup import find_agent
from coordinator.cli.options import command
from coordinator.cli.stores import empty_journal_problem, opened_blobs, opened_to_verify
from coordinator.cli.target import Target
from podium.address import label

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from chronicle.journal.port import JournalStore
    from chronicle.journal.records import Session
    from coordinator.client.async_client import AsyncPodium
    from coordinator.homes.generation import Generation
    from coordinator.operations.objects import Verification
    from coordinator.verification import SessionCheck, Verifier

__all__ = ["verify"]


@command
def verify(
    agent: Annotated[
        str | None, typer.Argument(metavar="[AGENT]", help="Only this one, such as hello/alice.", show_default=False)
    ] = None,
    *,
    target: Target,
) -> None:
    """Check all stored data against its hashes.

    The journal's file, the chain of events of every branch, every blob that the files and histories of all turns reach,
    each read back and hashed, the packs that have the blobs, and the files of keys and of calls of models. A home that
    was rewritten consistently, hashes included, is not detected. Of a home in a database server that was restored or
    replaced, it says when.
    """
    if target.url:
        _verify_at_url(target, agent)
        return
    from coordinator.home import Home  # noqa: PLC0415  slow to import
    from coordinator.home_damage import damaged_files  # noqa: PLC0415
    from coordinator.homes.generation import read_generation  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from coordinator.operations.branches import verification_object  # noqa: PLC0415
    from coordinator.verification import Verifier  # noqa: PLC0415

    home, json = target.home, target.json
    checks: list[SessionCheck] = []
    files: dict[str, str] = {}
    generation: Generation | None = None
    with opened_to_verify(home) as store, opened_blobs(home, kept=False) as blobs, Progress(lines=False) as progress:
        progress.show("checking journal.db")
        damage = store.damage() or empty_journal_problem(home, store)
        progress.clear()
        if damage is not None and not json:
            write_line(f"journal.db: BAD: {damage}")
        verifier = Verifier(store, blobs)
        sessions = _sessions(store, agent, damage)
        for number, session in enumerate(sessions, start=1):
            progress.show(f"checking {one_line(label(session))} ({number} of {len(sessions)})")
            check = _check(verifier, session, damage)
            checks.append(check)
            if not json:
                progress.clear()
                write_line(f"{one_line(check.name)}: {check.events} events, {check.blobs} blobs: {_result(check)}")
        if agent is None and damage is None and (objects := verifier.check_objects()) is not None:
            checks.append(objects)
            if not json:
                write_line(f"{objects.name}: {objects.blobs} blobs: {_result(objects)}")
        if agent is None:
            progress.show("checking packs, keys and records")
            files = damaged_files(Home(home), verifier)
            progress.clear()
            for name, problem in files.items() if not json else ():
                write_line(f"{name}: BAD: {problem}")
            if not files:
                generation = read_generation(open_records(Home(home)).documents())
    _conclude([verification_object(check) for check in checks], files, damage, generation, json=json)


def _verify_at_url(target: Target, agent: str | None) -> None:
    """Have a gateway check the stored data of one agent, or of all: not the files of its home."""

    async def check(podium: AsyncPodium) -> list[Verification]:
        names = [agent] if agent is not None else [found.agent async for found in podium.agents()]
        return [await podium.verify(name) for name in names]

    checks = target.ask(f"checking {agent or 'all agents'}", check, *([agent] if agent is not None else []))
    for each in checks if not target.json else ():
        found = "good" if each.ok else f"BAD: {each.problem}"
        write_line(f"{each.agent}: {each.events} events, {each.blobs} blobs: {found}")
    _conclude(checks, {}, None, None, json=target.json)


def _conclude(
    checks: Sequence[Verification],
    files: Mapping[str, str],
    damage: str | None,
    generation: Generation | None,
    *,
    json: bool,
) -> None:
    """Show the sums of all checks.

    Raises:
        typer.Exit: there is damage.
    """
    bad = sum(not check.ok for check in checks)
    ok = not bad and not files and damage is None
    events, blobs = sum(check.events for check in checks), sum(check.blobs for check in checks)
    if json:
        agents = [check.as_json() for check in checks]
        found = {"ok": ok, "events": events, "blobs": blobs, "journal": damage, "files": files, "agents": agents}
        write_json({**found, "generation": generation.as_json() if generation is not None else None})
    else:
        if generation is not None and generation.since_ms is not None:
            missing = f"turns that were answered before {iso(generation.since_ms)} may be missing"
            write_line(f"generation {generation.number} of the home: {missing}, as the database {generation.why}")
        write_line(f"{events} events and {blobs} blobs checked: {_verdict(len(checks), bad, files, damage)}")
    if not ok:
        raise typer.Exit(ExitCode.DAMAGED)


def _sessions(store: JournalStore, agent: str | None, damage: str | None) -> Sequence[Session]:
    try:
        return [find_agent(store, agent)] if agent is not None else store.sessions()
    except Exception:
        if damage is None:
            raise
        return []  # The damage is reported.


def _check(verifier: Verifier, session: Session, damage: str | None) -> SessionCheck:
    from coordinator.verification import SessionCheck  # noqa: PLC0415

    try:
        return verifier.check(session)
    except Exception as error:
        if damage is None:
            raise
        return SessionCheck(
            label(session), 0, 0, f"it cannot be read: {error}"
        )  # Any error may follow from the damage.


def _result(check: SessionCheck) -> str:
    if check.problem is None:
        return "good"
    advice = (
        None if check.cause is None or isinstance(check.cause, Corrupt) else hint(check.cause)
    )  # Corrupt: to verify
    return f"BAD: {with_hint(check.problem, advice)}"


def _verdict(checked: int, bad: int, files: Collection[str], damage: str | None) -> str:
    damaged = [*files, *(["journal.db"] if damage is not None else ())]
    if bad:
        return f"{bad} of {checked} agents are damaged"
    return f"{', '.join(damaged)} damaged" if damaged else "no damage was found"
