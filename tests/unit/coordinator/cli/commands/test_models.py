"""``podium models``: the profiles of a home."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.home import Home
from coordinator.homes.opening import open_records
from coordinator.models.config_file import store_config
from coordinator.models.profiles import ModelsConfig, Profile
from tests.unit.coordinator.cli.cli_home import Podium

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_profiles_say_who_runs_them_and_what_helps_in_an_emergency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S0.31"""
    home = Home(tmp_path / "home").create()
    fast = Profile("code.fast", "openai", "m", api_key_env="A_KEY", emergency_fallback="router", execution="hybrid")
    store_config(
        open_records(home).documents(), ModelsConfig({"code.fast": fast, "router": Profile("router", "openai", "v/m")})
    )
    podium = Podium(home.path, capsys)
    first, second = podium.json("models")["models"]
    assert (first["execution"], first["emergency_fallback"], first["key"]) == ("hybrid", "router", "$A_KEY")
    assert (second["execution"], second["emergency_fallback"]) == ("managed", None)
    header, row, *_ = podium("models").splitlines()
    assert header.split()[-3:] == ["EXECUTION", "FALLBACKS", "EMERGENCY"]
    assert row.split()[-3:] == ["hybrid", "-", "router"]
