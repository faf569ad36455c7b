"""What Ray's autoscaler is asked for: a placement group that waits, for each host that no node has room for.

Nothing runs in these groups. Ray's autoscaler sees that they wait, and adds nodes for those that its nodes can have,
whatever the others ask for. A group that Ray has placed has told it what it had to, and is removed: its room is for the
host.
"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chronicle.clock import Clock
    from coordinator.fleet.nodes.nodes import Needs

__all__ = ["NodeRequests"]

_KEEP_S: Final = 15.0
"""For how long a group that was placed keeps its node from being idle: until the node's manager has started. Then it is
asked for again, if the host still has no room: another one has taken it, or the node is drained."""


@dataclass(slots=True)
class _Group:
    group: PlacementGroup
    ready: ray.ObjectRef[Any]
    placed_s: float | None = None


class NodeRequests:
    """The groups of one coordinator, whose calls come one after the other.

    Args:
        clock: of how long groups have been placed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[Needs, list[_Group]] = {}
        self._knows_all = False

    def ask(self, lacking: Sequence[Needs]) -> None:
        """Have one group wait for each host that lacks room, and no others; blocks for calls of Ray's control process.

        Raises:
            ray.exceptions.RayError: the control process is away; what was asked for stays, or not.
        """
        prefix = f"podium/{ray.get_runtime_context().namespace}/"
        if not self._knows_all:
            _remove_all(prefix)  # of a coordinator before
            self._knows_all = True
        self._note_placed()
        wanted = Counter(lacking)
        for needs, groups in self._groups.items():
            while len(groups) > wanted[needs]:
                remove_placement_group(groups[-1].group)
                groups.pop()
            for old in [each for each in groups if self._is_old(each)]:
                remove_placement_group(old.group)
                groups.remove(old)
                wanted[needs] -= 1  # by the next call: now its room is for a host that waits in Ray
        for needs, hosts in wanted.items():
            groups = self._groups.setdefault(needs, [])
            while len(groups) < hosts:
                groups.append(_asked(needs, prefix))
        self._groups = {needs: groups for needs, groups in self._groups.items() if groups}

    def _note_placed(self) -> None:
        """Note which groups Ray has placed; these come last, and are removed first."""
        waiting = [each for groups in self._groups.values() for each in groups if each.placed_s is None]
        if waiting:
            refs = [each.ready for each in waiting]
            done = set(ray.wait(refs, num_returns=len(refs), timeout=0)[0])
            for each in waiting:
                if each.ready in done:
                    each.placed_s = self._clock.monotonic_s()
        for groups in self._groups.values():
            groups.sort(key=lambda each: each.placed_s is not None)

    def _is_old(self, group: _Group) -> bool:
        return group.placed_s is not None and self._clock.monotonic_s() - group.placed_s > _KEEP_S


def _asked(needs: Needs, prefix: str) -> _Group:
    group = placement_group(
        [dict(needs.resources)],
        name=prefix + secrets.token_hex(8),
        bundle_label_selector=[dict(needs.labels)],
    )
    return _Group(group, group.ready())


def _remove_all(prefix: str) -> None:
    for found in placement_group_table().values():
        if found["name"].startswith(prefix) and found["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(found["placement_group_id"])))
