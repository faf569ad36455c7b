"""Which positions of a database show that it may have gone back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chronicle.journal.postgres.position import ServerPosition
from coordinator.homes.generation import Generation
from coordinator.homes.postgres.gone_back import Known, why_gone_back

OLD = ServerPosition(7, 1, 100)
NOW = ServerPosition(7, 1, 200)
KNOWN = Known(Generation(), OLD)
NEXT = Known(Generation(2), ServerPosition(7, 2, 150))


@pytest.mark.parametrize(
    ("record", "node", "seen"),
    [
        (None, None, None),
        (KNOWN, None, None),
        (KNOWN, KNOWN, NOW),
        (KNOWN, None, OLD),
        (replace(KNOWN, marked=NOW), KNOWN, OLD),
        (replace(KNOWN, generation=Generation(2)), KNOWN, ServerPosition(6, 9, 900)),
        (replace(KNOWN, generation=Generation(3)), NEXT, NEXT.marked),
    ],
    ids=["new", "new here", "as known", "without its record here", "went on", "raised elsewhere", "raised twice"],
)
def test_it_has_gone_on(record: Known | None, node: Known | None, seen: ServerPosition | None) -> None:
    assert why_gone_back(NOW, record, node, seen) is None


@pytest.mark.parametrize(
    ("now", "record", "node", "seen"),
    [
        (replace(NOW, system=8), KNOWN, None, None),
        (replace(NOW, timeline=2), KNOWN, None, None),
        (NOW, None, KNOWN, OLD),
        (NOW, KNOWN, replace(KNOWN, marked=NOW), OLD),
        (NOW, KNOWN, NEXT, NEXT.marked),
        (NOW, replace(KNOWN, generation=Generation(2)), NEXT, NEXT.marked),
        (OLD, KNOWN, KNOWN, NOW),
    ],
    ids=["server", "timeline", "no record", "older mark", "older number", "other history", "shorter log"],
)
def test_it_may_have_gone_back(
    now: ServerPosition, record: Known | None, node: Known | None, seen: ServerPosition | None
) -> None:
    assert why_gone_back(now, record, node, seen) is not None


def test_a_position_is_written_as_the_server_does() -> None:
    assert str(ServerPosition(7, 2, (3 << 32) + 0xAB)) == "3/AB of timeline 2 of server 7"
