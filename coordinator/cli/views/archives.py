"""Views of agents that were dropped in part, exported or imported: the same for any home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chronicle.cli_kit.terminal import say, write_json, write_line
from chronicle.cli_kit.times import iso

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["show_erased", "show_export", "show_folded", "show_import"]


def show_export(exported: Mapping[str, Any], file: Path, *, json: bool) -> None:
    """Show an export; see `coordinator.operations.objects.Exported`."""
    if json:
        write_json({"agent": exported["agent"], "file": str(file), **exported})
        return
    events, blobs = exported["events"], exported["blobs"]
    write_line(f"{exported['agent']} after turn {exported['turn']}: {events} events, {blobs} blobs")
    say(f"head {exported['hash']}")


def show_import(imported: Mapping[str, Any], *, json: bool) -> None:
    """Show an import; see `coordinator.operations.objects.Imported`."""
    if json:
        write_json(imported)
        return
    events, blobs = imported["events"], imported["new_blobs"]
    write_line(f"{imported['agent']} after turn {imported['turn']}: {events} events, {blobs} new blobs")
    say(f"head {imported['hash']}")


def show_folded(folded: Mapping[str, Any], *, dry_run: bool) -> None:
    """Show what was dropped of an agent's history; see `coordinator.operations.objects.Folded`."""
    dropped, later = folded["dropped"], folded["later"]
    write_line(f"{_events(dropped)} dropped: {_turns(dropped)}, {dropped['bytes']} bytes")
    write_line(f"the history of {folded['agent']} begins at turn {folded['first_turn']}")
    if later is not None:
        write_line(f"{_events(later)} can be dropped later: {_turns(later)}, {_when(later)}")
    say("nothing was changed (--dry-run)" if dry_run else "podium gc frees the blobs that nothing else needs")


def show_erased(erased: Sequence[Mapping[str, Any]]) -> None:
    """Show which events were erased."""
    for event in erased:
        write_line(f"{event['event_id']} {event['type']} of turn {event['turn']} is erased")
    if any(event["had_blob"] for event in erased):
        say("podium gc frees the blobs that nothing else needs")


def _events(dropped: Mapping[str, Any]) -> str:
    return "1 event" if dropped["events"] == 1 else f"{dropped['events']} events"


def _turns(dropped: Mapping[str, Any]) -> str:
    return "1 turn" if dropped["turns"] == 1 else f"{dropped['turns']} turns"


def _when(later: Mapping[str, Any]) -> str:
    when = [f"turn {later['from_turn']}"] if later["from_turn"] is not None else []
    when.extend([iso(later["from_ms"])] if later["from_ms"] is not None else [])
    return f"from {' and '.join(when)} on"
