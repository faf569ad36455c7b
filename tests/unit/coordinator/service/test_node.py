"""``podium node``: what it does not start with. tests/e2e/test_nodes_elsewhere.py has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from chronicle.errors import InvalidInput
from coordinator.home import Home
from coordinator.service.node import serve_node
from coordinator.settings import Settings
from podium.errors import HomeError

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_home_in_a_directory_has_no_other_machines(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    with pytest.raises(HomeError, match="in a directory of this machine, which no other one reaches"):
        await serve_node(home, Settings(service_listen="127.0.0.1:0"), lambda _: None)


async def test_it_has_to_be_reached_and_needs_a_directory_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home").create()
    monkeypatch.setattr(Home, "is_shared", True)
    with pytest.raises(InvalidInput, match="give PODIUM_SERVICE_LISTEN"):
        await serve_node(home, Settings(), lambda _: None)
    with pytest.raises(InvalidInput, match="write HOST:PORT"):
        await serve_node(home, Settings(service_listen="8702"), lambda _: None)
    listen = Settings(service_listen="127.0.0.1:0")
    with home.service_lock(), pytest.raises(HomeError, match="a service runs on"):
        await serve_node(home, listen, lambda _: None)
    with home.node_lock(), pytest.raises(HomeError, match="another podium node runs on"):
        await serve_node(home, listen, lambda _: None)
