"""What several contract tests are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.postgres_server import running_server
from tests.s3_server import running_s3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.s3_server import S3Server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server for all tests: its start takes more than all requests of most of them. Each has a prefix of its own."""
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A PostgreSQL server for the tests of a module: how to connect to it."""
    with running_server() as conninfo:
        yield conninfo
