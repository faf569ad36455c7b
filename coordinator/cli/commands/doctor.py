"""``podium doctor``: what a home needs around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.progress import Progress
from chronicle.cli_kit.terminal import one_line, write_json, write_line
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import command, urls_of
from coordinator.cli.target import Target

if TYPE_CHECKING:
    from coordinator.doctor.finding import Finding, Subject

__all__ = ["doctor"]


@command
def doctor(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="Only this check; can be repeated.")
    ] = None,
    ray: Annotated[
        str,
        typer.Option(
            "--ray", metavar="ADDRESS", envvar="RAY_ADDRESS", help="The Ray cluster at HOST:PORT.", show_default=False
        ),
    ] = "",
    reaches: Annotated[
        list[str] | None,
        typer.Option("--reaches", metavar="ADDRESS", help="HOST:PORT that this machine has to reach."),
    ] = None,
    misses: Annotated[
        list[str] | None,
        typer.Option(
            "--misses",
            metavar="ADDRESS",
            help="HOST:PORT that it must not reach, such as one that a policy of the network closes.",
        ),
    ] = None,
    sandbox: Annotated[
        bool, typer.Option("--sandbox", help="Only which sandboxes for commands work on this machine, and why not.")
    ] = False,
    target: Target,
) -> None:
    """Check what a home needs around it, and say what to do where something is amiss.

    Versions, a mount, the journal, the bucket, the clocks, the Ray cluster, the service with its nodes, the gateway,
    and addresses on the network. It starts nothing. What does not apply here is skipped. With --json one object.
    """
    from coordinator.doctor.examination import CHECKS, examine  # noqa: PLC0415  slow to import
    from coordinator.doctor.sandbox import examine_sandboxes  # noqa: PLC0415

    names = tuple(only or ())
    if sandbox and names:
        raise typer.BadParameter("it is for the other checks, and --sandbox leaves these out", param_hint="--only")
    for name in names:
        if name not in CHECKS:
            raise typer.BadParameter(f"{name!r} is no check; there are {', '.join(CHECKS)}", param_hint="--only")
    if sandbox:
        findings = examine_sandboxes()
    else:
        findings = examine(_subject(target, ray, tuple(reaches or ()), tuple(misses or ())), names)
    found: dict[str, Finding] = {}
    with Progress(lines=False) as progress:
        progress.show("examining")
        for name, finding in findings:
            progress.clear()
            found[name] = finding
            if not target.json:
                _show(name, finding)
            progress.show("examining")
        progress.clear()
    unfit = [name for name, finding in found.items() if finding.status == "failed"]
    if target.json:
        checks = [{"check": name, **finding.as_json()} for name, finding in found.items()]
        write_json({"ok": not unfit, "checks": checks})
    if unfit:
        raise typer.Exit(ExitCode.UNFIT)


def _subject(target: Target, ray: str, reaches: tuple[str, ...], misses: tuple[str, ...]) -> Subject:
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none of them
    from coordinator.doctor.finding import Subject  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.settings import read_settings  # noqa: PLC0415

    settings = read_settings()
    home = Home(target.home)
    if home.exists:
        home.open()
        journal_url, blobs_url = (home.journal_url if home.is_shared else ""), home.blobs_url
    else:
        blobs_url, journal_url = urls_of(None, "", "")
    return Subject(
        home=home,
        journal_url=journal_url,
        blobs_url="" if blobs_url.startswith("file://") else blobs_url,
        ray=ray or (home.joined_cluster() if home.exists else None) or "",
        url=target.url,
        key=target.key or settings.key.get_secret_value(),
        reaches=reaches,
        misses=misses,
        settings=settings,
        clock=SystemClock(),
    )


def _show(name: str, finding: Finding) -> None:
    write_line(f"{finding.status:<8} {name:<9} {one_line(finding.found)}")
    if finding.remedy:
        write_line(f"{'':18} {one_line(finding.remedy)}")
