"""What ends the process that forks the commands of these tests."""

from tests.e2e.conftest import commands

__all__ = ["commands"]
