"""``podium why`` and ``podium nodes``: what an agent waits for, and where agents run."""

from __future__ import annotations

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.options import AgentArgument, command
from coordinator.cli.target import Target
from coordinator.cli.views.agents import show_nodes, show_why

__all__ = ["nodes", "why"]


@command
def why(agent: AgentArgument, *, target: Target) -> None:
    """Show what an agent waits for.

    Also its host, its lease, its inbox, its last error and the death of its last process. It changes nothing.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none

    found = {**target.ask(f"asking for {agent}", lambda podium: podium.why(agent), agent).as_json(), "agent": agent}
    if target.json:
        write_json(found)
    else:
        show_why(found, SystemClock().now_ms())


@command
def nodes(*, target: Target) -> None:
    """List the nodes that run agents, with their hosts and their memory."""
    found = None
    if target.has_service():
        found = [node.as_json() for node in target.ask("asking for the nodes", lambda podium: podium.nodes())]
    if target.json:
        write_json({"service": found is not None, "nodes": found or []})
    else:
        show_nodes(found)
