"""Settings: all of them are documented, with the defaults that they have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from chronicle import settings as chronicle_settings
from chronicle.errors import InvalidInput
from coordinator.settings import Settings, read_settings

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
"""The default of each variable, as the page has it."""


SET_FOR_AGENTS = {"AGENT_WORKSPACE", "PODIUM_HOST"}


def _variables(field: str) -> str:
    return f"PODIUM_{field.upper()}"


def test_every_setting_is_documented_with_its_default() -> None:
    for name, field in Settings.model_fields.items():
        shown = ROWS[_variables(name)]
        if field.default_factory is None and field.default is not None:
            assert shown == (f"`{field.default}`" if str(field.default) else "empty"), name
        for choice in get_args(field.annotation) if get_origin(field.annotation) is Literal else ():
            assert f"`{choice}`" in PAGE, name


READERS = ("chronicle/settings.py", "podium/settings.py", "coordinator/settings.py", "coordinator/environment.py")
"""The modules that read variables, those of other programs among them, or set them for child processes."""
LAUNCHER = "coordinator/ray/embedded/worker_launcher.py"
"""It passes its whole environment on, and imports nothing of ours, since it is a part of each start of a host."""


def test_only_the_settings_modules_touch_the_environment() -> None:
    found = {
        source.relative_to(ROOT).as_posix()
        for package in ("chronicle", "podium", "coordinator")
        for source in (ROOT / package).rglob("*.py")
        if re.search(r"\bos\.(environ|getenv|putenv)\b", _code(source))
    }
    assert sorted(found - {*READERS, LAUNCHER}) == []


def test_every_variable_that_is_read_is_documented() -> None:
    read = set(re.findall(r"\"((?:PODIUM|CHRONICLE)_[A-Z_]*[A-Z])\"", "".join(map(_code, map(ROOT.joinpath, READERS)))))
    assert {"CHRONICLE_STORE", "PODIUM_HOME"} <= read
    assert sorted(read - set(ROWS)) == []


def test_no_other_variable_is_documented() -> None:
    settings = {_variables(name) for name in Settings.model_fields}
    sources = _code(ROOT / "chronicle" / "settings.py")
    for name in ROWS:
        assert name in settings or f'"{name}"' in sources or name in SET_FOR_AGENTS, name


def _code(source: Path) -> str:
    return source.read_text(encoding="utf-8")


def test_a_value_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_WARM_HOSTS", "-1")
    with pytest.raises(InvalidInput, match=r"PODIUM_WARM_HOSTS=-1 cannot be used: input should be greater"):
        read_settings()


def test_the_defaults_of_stores_at_urls() -> None:
    assert ROWS["CHRONICLE_CACHE_BYTES"] == f"`{chronicle_settings.CACHE_BYTES}`"
    far = f"{chronicle_settings.CACHE_BYTES >> 30} GiB"
    assert ROWS["CHRONICLE_WARM_BYTES"].startswith(f"`{chronicle_settings.WARM_BYTES}`, {far}")
    assert ROWS["CHRONICLE_STORE_PATIENCE_S"] == f"`{chronicle_settings.STORE_PATIENCE_S:g}`"
    assert ROWS["CHRONICLE_BACKUP_WINDOW_S"] == f"`{chronicle_settings.BACKUP_WINDOW_S:g}`"
