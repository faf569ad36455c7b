"""What the tests of steps share."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.podium.turn.steps.planned import Planned


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Planned.runs, Planned.fail_after, Planned.program = Counter(), "", None
