"""A home for tests that are its service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home whose service the test itself is."""
    home = Home(tmp_path / "home").create()
    home.make_run_dir()
    yield home
    home.remove_run_dir()
