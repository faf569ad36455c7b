"""A home that is reached through a bind mount."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from coordinator.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes bind mounts")
def test_a_home_has_one_service_through_a_bind_mount_too(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["mount", "--bind", home.path, elsewhere], check=True)
    try:
        bound = Home(elsewhere).open()
        assert bound.socket_path == home.socket_path
        with home.service_lock() as held, bound.service_lock() as again:
            assert (held, again) == (True, False)
            assert bound.service_alive()
    finally:
        subprocess.run(["umount", elsewhere], check=True)
