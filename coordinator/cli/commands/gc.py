"""``podium gc``: freeing blobs that nothing needs."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.changes import gc_summary
from chronicle.cli_kit.terminal import say, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command
from coordinator.cli.stores import opened_blobs, opened_journal
from coordinator.cli.terminal import warn

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.ids import BlobId
    from chronicle.workspace.port import TreeRef

__all__ = ["gc"]


@command
def gc(
    *,
    now: Annotated[
        bool, typer.Option("--now", help="Free it at once; nothing else may use the home meanwhile.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Free blobs that nothing needs.

    These are blobs of deleted agents, of turns that were never committed, and of artifacts that have expired. Safe
    while agents run: one call condemns what is not needed; another one, an hour or more later, frees what is still not
    needed. Everything that a turn, a fork or a version of a file reaches is needed.
    """
    from chronicle.blobs.gc.collector import GcRules, collect  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.gateway_record import gateway_runs  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from podium.errors import AgentAwake  # noqa: PLC0415

    place = Home(home).open()
    records = open_records(place)
    with ExitStack() as stack:
        if now and not dry_run and not stack.enter_context(place.service_lock()):
            raise AgentAwake("the service of this home is running; end its clients first, or leave --now away")
        if now and not dry_run and gateway_runs(place):  # its service was killed: it writes uploads still
            raise AgentAwake("the gateway of this home is running; end it by podium down, or leave --now away")
        if now and not dry_run:
            claim = records.service_claim()
            claim.hold()  # no service of another directory, nor one that begins meanwhile
            stack.callback(claim.release)
            _trim(home, place.blobs_url)
        held = None
        if not dry_run:
            held = stack.enter_context(records.collection_lease().hold())
            _drop_expired(home)
        generation = records.generation_watch().check()
        report = collect(
            place.blobs_url,
            lambda: _reached(home),
            GcRules(alone=now, dry_run=dry_run, keep_from=1.0 if now else 0.5, generation=generation.number),
            roots=lambda: _digest_of_roots(home),
            held=held,
        )
    for damage in report.damaged:
        warn(damage)
    if json:
        write_json(asdict(report))
        return
    write_line(gc_summary(report))
    if report.ripe_ms is not None and not now:
        say(f"what is condemned can be freed from {iso(report.ripe_ms)} on: podium gc")
    if dry_run:
        say("nothing was changed (--dry-run)")


def _drop_expired(home: Path) -> None:
    """Delete the artifacts of clients that have expired."""
    from chronicle.clock import SystemClock  # noqa: PLC0415
    from coordinator.sessions.artifacts import drop_expired  # noqa: PLC0415

    with opened_journal(home) as store:
        drop_expired(store, SystemClock().now_ms())


def _trim(home: Path, blobs_url: str) -> None:
    """Trim the warm files of all workspaces to their limit; no workspace is open."""
    from chronicle.errors import Conflict  # noqa: PLC0415
    from chronicle.settings import read_settings  # noqa: PLC0415
    from chronicle.workspace.layer.disk.trim import trim_layers  # noqa: PLC0415
    from chronicle.workspace.layer.workspace_home import lock_workspace, unlock_workspace  # noqa: PLC0415

    warm_bytes = read_settings().warm_bytes(is_far=not blobs_url.startswith("file://"))
    for layers in sorted((home / "nodes").glob("*/layers/*")):
        with suppress(OSError, Conflict), ExitStack() as stack:  # For example on a full disk; the next wake trims it.
            stack.callback(unlock_workspace, lock_workspace(layers))
            trim_layers(layers, warm_bytes)


def _reached(home: Path) -> set[BlobId]:
    from podium.history.reachability import reachable_blobs  # noqa: PLC0415

    with opened_journal(home) as store, opened_blobs(home) as blobs:
        return reachable_blobs(store, blobs, _layers(home))


def _digest_of_roots(home: Path) -> str:
    from podium.history.reachability import digest_of_roots  # noqa: PLC0415

    with opened_journal(home) as store:
        return digest_of_roots(store, _layers(home))


def _layers(home: Path) -> list[TreeRef]:
    """Return the trees that the layers of all nodes refer to; of other machines, those that were published last."""
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.node_roots import roots_of  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415

    return [*roots_of(home), *open_records(Home(home).open()).node_roots().of_others()]
