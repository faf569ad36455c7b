"""Profiles of models: what a project file may say, and how it is told what is wrong."""

from __future__ import annotations

import stat
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from chronicle.errors import Corrupt, InvalidInput
from coordinator.documents import MODELS, FileDocuments
from coordinator.models.config_file import ConfigFile, read_config, store_config
from coordinator.models.profiles import Limits, ModelsConfig, Price, Profile
from coordinator.models.providers import key_of
from coordinator.registry.project import load_project
from podium.models import ModelError

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = 'agents = ["hello.py:Hello"]\n'
FULL = """
[models."code.fast"]
provider = "openai"
model = "gpt-5.6-mini"
base_url = "http://127.0.0.1:11434/v1"
api_key_env = "SOME_KEY"
fallbacks = ["code.cheap", "echo"]
emergency_fallback = "openrouter"
execution = "hybrid"
max_output_tokens = 4096
cache = "short"
prompt_cache = "breakpoints"
extra = {reasoning_effort = "low"}
timeout_s = 30
price = {input = 0.25, output = "2.00", cached = "0.025"}
limits = {concurrent = 8, per_minute = 500}

[models."code.fast".tenants.acme]
api_key_file = "keys/acme"
base_url = "https://models.acme.example/v1"

[models."code.cheap"]
provider = "anthropic"
model = "claude-x"
api_key_file = "/run/secrets/anthropic"

[models.echo]
provider = "scripted"

[models.openrouter]
provider = "openai"
model = "vendor/m"
base_url = "https://openrouter.ai/api/v1"

[models.budgets]
acme = {per_day = "5.00"}
"*" = {per_day = 1}
"""

LOCAL = '[models.a]\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
TWO = '[models.b]\nprovider = "scripted"\n[models.a]\nprovider = "scripted"\n'


def config_of(directory: Path, text: str) -> ModelsConfig:
    (directory / "podium.toml").write_text(AGENTS + text)
    return load_project(directory / "podium.toml").models


def test_profiles_of_a_project(tmp_path: Path) -> None:  # S0.25, S0.31
    config = config_of(tmp_path, FULL)
    assert config.profiles["code.fast"] == Profile(
        "code.fast",
        "openai",
        "gpt-5.6-mini",
        base_url="http://127.0.0.1:11434/v1",
        api_key_env="SOME_KEY",
        fallbacks=("code.cheap", "echo"),
        emergency_fallback="openrouter",
        execution="hybrid",
        max_output_tokens=4096,
        cache="short",
        prompt_cache="breakpoints",
        extra={"reasoning_effort": "low"},
        timeout_s=30.0,
        price=Price("0.25", "2.00", "0.025"),
        limits=Limits(8, 500),
        tenants={"acme": {"api_key_file": str(tmp_path / "keys/acme"), "base_url": "https://models.acme.example/v1"}},
    )
    assert config.key_variables == {"SOME_KEY"}
    assert config.budget("acme") == Decimal(5)
    assert config.budget("default") == 1


def test_a_tenant_has_its_own_key_and_server(tmp_path: Path) -> None:  # S0.31
    profile = config_of(tmp_path, FULL).profiles["code.fast"]
    own = profile.of_tenant("acme")
    assert own.base_url == "https://models.acme.example/v1"
    assert own.api_key_env is None
    assert own.model == "gpt-5.6-mini"
    assert (own.execution, own.emergency_fallback) == ("byoc", None)
    key_alone = replace(profile, tenants={"acme": {"api_key_file": "/keys/acme"}}).of_tenant("acme")
    assert (key_alone.execution, key_alone.emergency_fallback) == ("byok", None)
    assert profile.of_tenant("default") == profile
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/acme").write_text("theirs\n")
    assert key_of(own, {"SOME_KEY": "ours"}) == "theirs"
    assert key_of(profile, {"SOME_KEY": "ours"}) == "ours"


def test_a_server_of_a_tenant_never_gets_the_key_of_the_home(tmp_path: Path) -> None:
    text = FULL.replace('api_key_file = "keys/acme"\n', "")
    profile = config_of(tmp_path, text).profiles["code.fast"]
    own = profile.of_tenant("acme")
    assert own.base_url == "https://models.acme.example/v1"
    assert key_of(own, {"SOME_KEY": "ours"}) is None
    assert key_of(profile.of_tenant("other"), {"SOME_KEY": "ours"}) == "ours"


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        ("models = 1", "models", "write a table: [models.NAME]"),
        ("[models.a]", "models.a.provider", "it is missing; write one of 'openai'"),
        ('[models.a]\nprovider = "gemini"', "models.a.provider", "'gemini' cannot be used; write one of 'openai'"),
        ('[models.a]\nprovider = "openai"', "models.a.model", "it is missing"),
        ('[models.a]\nprovider = "scripted"\nmdel = "x"', "models.a.mdel", "there is no such key; the keys are"),
        ('[models."a b"]\nprovider = "scripted"', 'models."a b"', "letters, digits and"),
        ('[models.a]\nprovider = "scripted"\nscript = "no.json"', "models.a.script", "there is no file"),
        ('[models.a]\nprovider = "scripted"\napi_key_env = "K"', "models.a.api_key_env", "calls no server; remove it"),
        ('[models.a]\nprovider = "openai"\nmodel = "m"\nscript = "podium.toml"', "models.a.script", "only provider"),
        ('[models.a]\nprovider = "openai"\nmodel = "m"\nbase_url = "localhost:1"', "models.a.base_url", "the URL of"),
        (
            '[models.a]\nprovider = "openai"\nmodel = "m"\nbase_url = "https://key@host/"',
            "models.a.base_url",
            "without a key in it",
        ),
        ('[models.a]\nprovider = "openai"\nmodel = "m"\napi_key_env = "sk-123"', "models.a.api_key_env", "the name of"),
        (
            '[models.a]\nprovider = "openai"\nmodel = "m"\napi_key_env = "K"\napi_key_file = "k"',
            "models.a.api_key_file",
            "api_key_env is there, too",
        ),
        (
            '[models.a]\nprovider = "scripted"\nfallbacks = ["b"]',
            "models.a.fallbacks[0]",
            "there is no profile 'b'; the other profiles are: none yet",
        ),
        (
            '[models.a]\nprovider = "scripted"\nemergency_fallback = "b"',
            "models.a.emergency_fallback",
            "no profile 'b'",
        ),
        (
            f'{TWO}execution = "byok"\nemergency_fallback = "b"',
            "models.a.emergency_fallback",
            "caller's own key",
        ),
        (
            f'{TWO}fallbacks = ["b"]\nemergency_fallback = "b"',
            "models.a.emergency_fallback",
            "among the fallbacks already",
        ),
        ('[models.a]\nprovider = "scripted"\nexecution = "cloud"', "models.a.execution", "one of 'managed', 'byok'"),
        ('[models.a]\nprovider = "scripted"\nfallbacks = ["a"]', "models.a.fallbacks[0]", "it is the profile itself"),
        ('[models.a]\nprovider = "scripted"\nfallbacks = "b"', "models.a.fallbacks", "write a list"),
        ('[models.a]\nprovider = "scripted"\nmax_output_tokens = 0', "models.a.max_output_tokens", "whole number from"),
        ('[models.a]\nprovider = "scripted"\ncache = "ever"', "models.a.cache", '"short" or "long"'),
        (
            f'{LOCAL}cache = "long"',
            "models.a.cache",
            'http://127.0.0.1:1/v1 is none: say how with prompt_cache = "breakpoints" or "retention", or remove',
        ),
        (f'{LOCAL}prompt_cache = "on"', "models.a.prompt_cache", "one of 'breakpoints', 'retention', 'off'"),
        (
            '[models.a]\nprovider = "anthropic"\nmodel = "m"\nprompt_cache = "retention"',
            "models.a.prompt_cache",
            "one of 'breakpoints', 'off'",
        ),
        ('[models.a]\nprovider = "scripted"\nprompt_cache = "off"', "models.a.prompt_cache", "has no cache"),
        ('[models.a]\nprovider = "scripted"\nextra = {a = 1}', "models.a.extra", "sends no request"),
        (f"{LOCAL}extra = 1", "models.a.extra", "fields of the provider's request"),
        (f"{LOCAL}extra = {{day = 2026-01-01}}", "models.a.extra", "cannot be sent as JSON"),
        ('[models.a]\nprovider = "scripted"\nprice = {input = 1}', "models.a.price", "for a million tokens"),
        (
            '[models.a]\nprovider = "scripted"\nprice = {input = "x", output = 1}',
            "models.a.price.input",
            "'x' is not an amount",
        ),
        (
            '[models.a]\nprovider = "scripted"\nlimits = {second = 1}',
            "models.a.limits.second",
            "there is no such limit",
        ),
        (
            '[models.a]\nprovider = "scripted"\n[models.a.tenants.acme]\nkey = "x"',
            "models.a.tenants.acme.key",
            "no such",
        ),
        ('[models.budgets]\nacme = "5"', "models.budgets.acme", 'write {per_day = "5.00"}'),
        ('[models.budgets]\n"A B" = {per_day = 1}', "models.budgets.A B", "tenant"),
        ("[models.budgets]\nacme = {per_day = -1}", "models.budgets.acme.per_day", "-1 is not an amount"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, key: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        config_of(tmp_path, text)
    assert f"podium.toml: {key}: " in str(refused.value)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        (Profile("a", "openai", "m", api_key_env="NO_KEY"), "from the variable NO_KEY, which the service"),
        (Profile("a", "openai", "m", api_key_file="/nowhere/key"), "/nowhere/key, which cannot be read (No such file"),
        (Profile("a", "openai", "m"), "names no key: give it api_key_env or api_key_file"),
    ],
)
def test_a_missing_key_is_told_with_its_place(profile: Profile, text: str) -> None:
    with pytest.raises(ModelError) as missing:
        key_of(profile, {"NO_KEY": " "})
    assert missing.value.kind == "auth"
    assert text in str(missing.value)


def test_an_empty_file_has_no_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ModelError, match="which is empty: write the key into it"):
        key_of(Profile("a", "openai", "m", api_key_file=str(tmp_path / "key")), {})


def test_a_server_of_ones_own_needs_no_key() -> None:
    assert key_of(Profile("a", "openai", "m", base_url="http://127.0.0.1:1/v1"), {}) is None


def test_a_home_keeps_the_profiles_and_no_key(tmp_path: Path) -> None:
    config = config_of(tmp_path, FULL)
    assert read_config(FileDocuments(tmp_path)) == ModelsConfig()
    store_config(FileDocuments(tmp_path), config)
    assert read_config(FileDocuments(tmp_path)) == config
    assert stat.S_IMODE((tmp_path / MODELS).stat().st_mode) == 0o600


def test_nothing_is_written_for_a_project_without_models(tmp_path: Path) -> None:
    store_config(FileDocuments(tmp_path), ModelsConfig())
    assert not (tmp_path / MODELS).exists()


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    current = ConfigFile(FileDocuments(tmp_path))
    assert current() == ModelsConfig()
    store_config(FileDocuments(tmp_path), ModelsConfig({"a": Profile("a", "scripted")}))
    first = current()
    assert list(first.profiles) == ["a"]
    assert current() is first
    store_config(FileDocuments(tmp_path), ModelsConfig())
    assert current() == ModelsConfig()


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', '{"format": 1, "profiles": {"a": {}}}'])
def test_a_damaged_file_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / MODELS).write_text(content)
    with pytest.raises(Corrupt, match=r"models\.json"):
        read_config(FileDocuments(tmp_path))
