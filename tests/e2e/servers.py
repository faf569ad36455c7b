"""A PostgreSQL server and an S3 server for homes, and what homes in them need."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from tests.contract.postgres_server import PostgresServer, new_postgres
from tests.contract.test_home_in_postgres import url_of
from tests.s3_server import BUCKET, S3Server, running_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Servers", "servers"]


@dataclass(frozen=True, slots=True)
class Servers:
    """Both servers."""

    postgres: PostgresServer
    s3: S3Server
    settings: dict[str, str]
    """Of a new home in them."""


@contextmanager
def servers(directory: Path) -> Iterator[Servers]:
    """Run both."""
    with new_postgres() as postgres, running_s3(directory) as s3:
        postgres.start()
        settings = {
            "PODIUM_JOURNAL_URL": url_of(postgres.conninfo, f"home_{uuid4().hex}"),
            "PODIUM_BLOBS_URL": f"s3://{BUCKET}/{uuid4().hex}",
            "AWS_ENDPOINT_URL_S3": s3.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CHRONICLE_CACHE_DIR": str(directory / "cache"),
        }
        try:
            yield Servers(postgres, s3, settings)
        finally:
            postgres.stop_at_once()
