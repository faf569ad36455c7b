"""What ``podium.agent`` exports: all that an agent's author needs, and nothing before it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import podium.agent
from podium.agent.models import delta_state


def _imported(statement: str, modules: list[str]) -> list[str]:
    """Return which of some modules are imported after a statement, in a process of its own."""
    code = f"import sys; {statement}; print(*[m for m in {modules!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120)
    return found.stdout.split()


def test_state_and_migrations_come_with_the_agent() -> None:
    from podium.agent import AgentContext, BaseAgent, DeltaState, Retention, migration

    assert DeltaState is delta_state.DeltaState
    assert migration is delta_state.migration
    assert {value.__name__ for value in (AgentContext, BaseAgent, DeltaState, Retention, migration)} == set(
        podium.agent.__all__
    )


def test_all_names_are_listed_and_no_other_is_there() -> None:
    assert set(podium.agent.__all__) <= set(dir(podium.agent))
    with pytest.raises(AttributeError, match=r"module 'podium\.agent' has no attribute 'Nothing'"):
        podium.agent.Nothing  # noqa: B018


def test_the_package_alone_imports_none_of_what_its_names_need() -> None:
    assert _imported("import podium.agent.spec", ["pydantic", "structlog", "typing_extensions", "asyncio"]) == []


def test_no_name_needs_ray_fuse_a_database_or_what_formats_logs() -> None:
    heavy = ["ray", "pyfuse3", "sqlite3", "psycopg", "fsspec", "rich", "structlog"]
    assert _imported("from podium.agent import *", heavy) == []
