"""The environment variables by which libraries find credentials of a home's database and bucket."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.home import Home

__all__ = ["credentials_of"]

_OF_DATABASE: Final = r"PG[A-Z]+|PODIUM_JOURNAL_URL"
"""libpq's all begin so."""
_OF_BUCKETS: Final = {"s3": r"AWS_.*", "s3a": r"AWS_.*", "gs": r"GOOGLE_.*", "gcs": r"GOOGLE_.*", "abfs": r"AZURE_.*"}
"""By the scheme of the blobs' URL."""
_OF_ANY_BUCKET: Final = r"FSSPEC_.*|PODIUM_BLOBS_URL"


def credentials_of(home: Home) -> Callable[[str], bool]:
    """Return whether a variable may hold a credential for a home on a server; none does for one in a directory."""
    if not home.is_shared:
        return lambda _: False
    of_bucket = _OF_BUCKETS.get(home.blobs_url.partition("://")[0], r"(?!)")
    names = re.compile(f"(?:{_OF_DATABASE}|{_OF_ANY_BUCKET}|{of_bucket})")
    return lambda name: names.fullmatch(name) is not None
