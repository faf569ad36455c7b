"""The variable of the workspace in a process that has none of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from podium.errors import PodiumError
from podium.settings import forbid_workspace_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AGENT_WORKSPACE", "/somewhere")
    environ = os.environ.__class__
    forbid_workspace_variable("use ctx.workspace")
    yield
    os.environ.__class__ = environ


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize(
    "read",
    [
        lambda: os.environ["AGENT_WORKSPACE"],
        lambda: os.environ.get("AGENT_WORKSPACE"),
        lambda: os.getenv("AGENT_WORKSPACE", "/tmp"),
    ],
    ids=["index", "get", "getenv"],
)
def test_reading_it_says_what_to_use(read: Callable[[], str]) -> None:
    with pytest.raises(PodiumError, match="use ctx.workspace"):
        read()


@pytest.mark.usefixtures("forbidden")
def test_it_is_not_there() -> None:
    assert "AGENT_WORKSPACE" not in os.environ
    assert "PATH" in os.environ
    assert "AGENT_WORKSPACE" not in dict(os.environ)
