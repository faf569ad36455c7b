"""The view of ``podium top``: a head line of the home, and a table by agent type."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from chronicle.cli_kit.terminal import one_line, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

__all__ = ["once_shown", "watched"]

_HEADINGS = ("TYPE", "TENANT", "AWAKE", "TURNS", "TURNS/S", "FAILED", "TURN P50", "TURN P99", "TOKENS/S")
_HEAD_LINES = 6
"""Lines of the screen that are not rows of the table."""


def once_shown(figures: Mapping[str, Any]) -> None:
    """Write figures to stdout."""
    console = Console(width=200, highlight=False, markup=False, emoji=False, no_color=True)
    with console.capture() as captured:
        console.print(_view(figures, None))
    write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


async def watched(looks: AsyncIterator[Mapping[str, Any]]) -> None:
    """Show figures on the terminal, each look over the one before, until it is cancelled."""
    with Live(auto_refresh=False, screen=True) as live:
        async for figures in looks:
            rows = max(1, shutil.get_terminal_size().lines - _HEAD_LINES)
            live.update(_view(figures, rows), refresh=True)


def _view(figures: Mapping[str, Any], most_rows: int | None) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
    busiest = sorted(figures["types"], key=lambda row: (-row["turns"], -row["awake"], row["agent_type"]))
    shown = most_rows and max(1, most_rows - min(len(figures["nodes"]), most_rows // 2))
    for row in busiest[:shown]:
        table.add_row(*map(Text, _cells(row)))
    nodes = map(Text, _nodes(figures["nodes"], most_rows))
    return Group(*map(Text, _head(figures)), *nodes, Text(""), table)


def _nodes(nodes: Sequence[Mapping[str, Any]], most_rows: int | None) -> list[str]:
    """Return a line for each of several nodes, those with the most agents first."""
    if len(nodes) < 2:
        return []
    busiest = sorted(nodes, key=lambda node: (-node["agents"], node["node"]))
    width = max(len(node["node"]) for node in nodes)
    return [
        f"node    {one_line(node['node']):<{width}}  {node['agents']} agents, {_processes(node['hosts'])}"
        for node in busiest[: most_rows and max(1, most_rows // 2)]
    ]


def _processes(hosts: Mapping[str, int]) -> str:
    return f"{hosts['assigned']} assigned, {hosts['warm']} warm, {hosts['starting']} starting"


def _head(figures: Mapping[str, Any]) -> list[str]:
    wake, seal, commit = figures["wake"], figures["seal"], figures["commit"]
    processes = _processes(figures["hosts"])
    inbox, outbox = (_time(figures[name]) for name in ("inbox_lag_s", "outbox_lag_s"))
    service = "" if figures["service"] else "    NO SERVICE"
    since = f"the last {figures['interval_s']:.1f} s" if figures["interval_s"] else "all since the start"
    awake, asleep, waking = (figures[name] for name in ("agents_awake", "agents_asleep", "wakes_waiting"))
    waiting = f"{figures['inbox_messages']} waiting, oldest {inbox}, {figures['parked_messages']} parked"
    return [
        f"agents  {awake} awake, {asleep} asleep, {waking} waking    processes  {processes}{service}",
        f"inbox   {waiting}    outbox  {figures['outbox_messages']} waiting, oldest {outbox}",
        f"p50/p99 wake {_times(wake)}    seal {_times(seal)}    commit {_times(commit)}    ({since})",
    ]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one_line(row["agent_type"]),
        one_line(row["tenant"]),
        str(row["awake"]),
        str(row["turns"]),
        _rate(row["turns_per_s"]),
        str(row["failed"]),
        _time(row["turn"]["p50_s"]),
        _time(row["turn"]["p99_s"]),
        _rate(row["tokens_per_s"]),
    )


def _times(durations: Mapping[str, Any]) -> str:
    return f"{_time(durations['p50_s'])}/{_time(durations['p99_s'])}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if not seconds:
        return "0"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:.1f}"
