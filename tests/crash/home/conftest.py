"""What the crash tests of homes are given."""

from tests.contract.conftest import server

__all__ = ["server"]
