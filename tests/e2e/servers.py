"""A PostgreSQL server and an S3 server for homes, and what reaches them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.contract.postgres_server import find_binaries, running_server
from tests.contract.test_home_in_postgres import url_of
from tests.s3_server import BUCKET, running_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["servers"]


@contextmanager
def servers(directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Run both; yield how to connect to PostgreSQL, and the settings of a new home in them."""
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed: make setup-tests"
    with running_server(binaries) as conninfo, running_s3(directory) as s3:
        yield (
            conninfo,
            {
                "PODIUM_JOURNAL_URL": url_of(conninfo, f"home_{uuid4().hex}"),
                "PODIUM_BLOBS_URL": f"s3://{BUCKET}/{uuid4().hex}",
                "AWS_ENDPOINT_URL_S3": s3.endpoint,
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true",
                "CHRONICLE_CACHE_DIR": str(directory / "cache"),
            },
        )
