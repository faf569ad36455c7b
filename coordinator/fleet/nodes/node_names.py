"""Names of nodes: short and readable, and the same again when a node comes back. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coordinator.fleet.nodes.nodes import NodeId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Member", "name_nodes"]

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9.-]+")
_LENGTH: Final = 63
"""As of a label of a host's name: a node's name is that of a directory, too."""


@dataclass(frozen=True, slots=True)
class Member:
    """A node of a Ray cluster."""

    ray_id: str
    """Given by Ray, a new one at each start of the node."""
    name: str
    """As of ``ray start --node-name``; its address if it was given none."""
    address: str
    hostname: str


def name_nodes(members: Iterable[Member], named: Mapping[str, NodeId]) -> dict[str, NodeId]:
    """Return the names of nodes by Ray's ids: their own, or those of their machines, with numbers where two are equal.

    Args:
        members: those that live.
        named: the names that some of them have; they keep them.
    """
    living = sorted(members, key=lambda member: (member.name, member.ray_id))
    found = {member.ray_id: named[member.ray_id] for member in living if member.ray_id in named}
    for member in living:
        if member.ray_id not in found:
            found[member.ray_id] = _free_name(member, set(found.values()))
    return found


def _free_name(member: Member, taken: set[NodeId]) -> NodeId:
    own = member.name if member.name != member.address else member.hostname
    name = _NOT_IN_NAMES.sub("-", own).strip(".-")[:_LENGTH] or "node"
    number = 1
    while (candidate := NodeId(name if number == 1 else f"{name}-{number}")) in taken:
        number += 1
    return candidate
