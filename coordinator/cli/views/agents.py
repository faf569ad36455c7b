"""Agents, what they wait for, and nodes, as commands show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from chronicle.cli_kit.terminal import one_line, say, write_line
from chronicle.cli_kit.times import ago, iso
from coordinator.cli.hints import recorded_error
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["show_agents", "show_nodes", "show_outbox", "show_why"]

_MIB: Final = 1 << 20
_GIB: Final = 1 << 30


def show_agents(agents: Sequence[Mapping[str, Any]], now_ms: int) -> None:
    """Write agents as a table; see `coordinator.operations.objects.AgentObject`."""
    table(
        ("AGENT", "STATUS", "TURN", "VERSION", "LAST ACTIVITY", "PENDING", "PARKED", "ISOLATION", "SANDBOX", "MEMORY"),
        [
            (
                agent["agent"],
                agent["status"],
                str(agent["turn"]),
                str(agent["version"]),
                f"{iso(agent['updated_at'])} ({ago(now_ms - agent['updated_at'])})",
                str(agent["pending"]),
                str(agent["parked"]),
                agent["isolation"] or "",
                agent["sandbox"] or "",
                _size(agent["memory"]) if agent["memory"] is not None else "",
            )
            for agent in agents
        ],
    )


def _size(count: int) -> str:
    return f"{count / _MIB:.1f} MiB" if count >= _MIB else f"{count / 1024:.0f} KiB"


def show_why(why: Mapping[str, Any], now_ms: int) -> None:
    """Write what is known of an agent, a line for each fact; the first says what it waits for."""
    write_line(one_line(f"{why['agent']} is {why['status']}; it waits for {why['waits_for']}"))
    parked = f", {why['parked']} parked" if why["parked"] else ""
    facts: list[tuple[str, str | None]] = [
        ("turn", str(why["turn"])),
        ("inbox", f"{why['pending']} pending{parked}"),
        ("outbox", _of_outbox(why.get("outbox"), now_ms)),
        ("host", _host(why) if why["host_id"] else None),
        ("sandbox", _sandbox(why) if why["sandbox"] else None),
        ("quarantine", why["quarantine"]),
        ("handles", why["message_id"]),
        ("lease", f"epoch {why['epoch']}, of {why['holder']}" if why["holder"] else None),
        ("class", why["problem"]),
    ]
    if why["failed_wakes"]:
        facts.append(("failed wakes", f"{why['failed_wakes']} in a row, the last one: {why['wake_error']}"))
    facts.append(("last death", why["last_death"]))
    if error := why["last_error"]:
        of = f" of {error['message_id']}" if error["message_id"] else ""
        when = ago(now_ms - error["at"])
        facts.append(("last error", f"{recorded_error(error)} (attempt {error['attempt']}{of}, {when})"))
    for name, fact in facts:
        if fact is not None:
            write_line(one_line(f"  {name:<13} {fact}"))


def _host(why: Mapping[str, Any]) -> str:
    process = f"process {why['pid']}, " if why["pid"] is not None else ""
    return f"{why['host_id']} on {why['node']}, {process}isolation {why['isolation']}"


def _sandbox(why: Mapping[str, Any]) -> str:
    works = f"; here it is {why['sandbox_works']}" if why["sandbox_works"] else ""
    return f"{why['sandbox']} or stronger{works}"


def show_outbox(agent: str, outbox: Mapping[str, Any], now_ms: int) -> None:
    """Say which messages of other agents are not in an agent's inbox yet."""
    say(one_line(f"in the outbox for {agent}: {_of_outbox(outbox, now_ms)}"))


def _of_outbox(outbox: Mapping[str, Any] | None, now_ms: int) -> str | None:
    if outbox is None:
        return None
    held = f", held: {outbox['held_by']}" if outbox["held_by"] else ""
    return f"{outbox['messages']} to be delivered, the oldest of {ago(now_ms - outbox['oldest_at'])}{held}"


def _status(node: Mapping[str, Any]) -> str:
    said = "ready" if node["problem"] is None else f"not ready: {node['problem']}"
    return f"drained, {said}" if node["drained"] else said


def show_nodes(nodes: Sequence[Mapping[str, Any]] | None) -> None:
    """Write nodes as a table; ``None`` if no service runs."""
    if nodes is None:
        say("no service is running; it has the nodes")
        return
    table(
        ("NODE", "STATUS", "AGENTS", "HOSTS", "WARM", "STARTING", "MOUNTS", "WORKSPACES", "CPUS", "MEMORY AVAILABLE"),
        [
            (
                node["node"],
                _status(node),
                str(node["agents"]),
                str(node["assigned"]),
                str(node["warm"]),
                str(node["starting"]),
                str(node["mounts"]),
                node["presentation"],
                str(node["cpus"]),
                f"{node['memory_available'] / _GIB:.1f} of {node['memory'] / _GIB:.1f} GiB",
            )
            for node in nodes
        ],
    )
