"""The users' pages whose commands start a service; the others are run in ``tests/unit``, see `tests.guide_pages`.

The commands of the first page are the installed script. Those of the others are forked from a process that has imported
it, see `tests.e2e.command_server`: half of the time of the tutorial was imports of its commands.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from coordinator.gateway_record import gateway_runs
from coordinator.home import Home
from tests.e2e.conftest import COMMANDS, wait_for_end
from tests.e2e.servers import servers
from tests.guide_pages import LIMIT_S, Page, pages, run_page
from tests.leftovers import new_directory
from tests.ray_cluster import running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def directory() -> Iterator[Path]:
    """Where a page makes its homes; their services have ended afterwards."""
    with new_directory("podium-guide-") as made:
        try:
            yield made
        finally:
            for home in (made / ".podium", *made.glob("*/.podium")):
                if home.is_dir() and gateway_runs(Home(home)):  # a page that failed has left it
                    subprocess.run([sys.executable, "-m", "coordinator.cli", "down", "--home", home], check=False)
                wait_for_end(home)


@pytest.mark.parametrize("page", [page for page in pages() if page.uses_a_service], ids=lambda page: page.name)
def test_the_code_of_a_page_gives_what_is_shown(
    page: Page, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if page.name == "README.md":
        run_page(page, directory)
        return
    with COMMANDS.programs(LIMIT_S) as programs, surroundings_of(page, tmp_path_factory.mktemp("servers")):
        run_page(page, directory, programs)


@contextmanager
def surroundings_of(page: Page, directory: Path) -> Iterator[None]:
    """Run what a page says that its reader has."""
    if page.name != "docs/guide/cluster.md":
        yield
        return
    with servers(directory) as made, running_cluster("n1", "n2") as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in made.settings.items():
            patch.setenv({"PODIUM_JOURNAL_URL": "DATABASE", "PODIUM_BLOBS_URL": "BUCKET"}.get(name, name), value)
        patch.setenv("CLUSTER", cluster.address)
        yield
