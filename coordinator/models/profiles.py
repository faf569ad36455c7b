"""The profiles of models: the table ``[models]`` of a project file, checked.

::

    [models."code.fast"]
    provider = "openai"                 # openai, openai-responses, anthropic, scripted
    model = "gpt-5.6-mini"
    base_url = "http://127.0.0.1:11434/v1"   # by default the vendor's
    api_key_env = "OPENAI_API_KEY"      # or api_key_file = "/run/secrets/openai"
    fallbacks = ["code.cheap"]          # in this order
    emergency_fallback = "openrouter"   # when all of these have failed; never with a tenant's own key or server
    execution = "managed"               # managed, byok, byoc, hybrid
    max_output_tokens = 4096
    price = {input = "0.25", output = "2.00", cached = "0.025"}   # for a million tokens
    limits = {concurrent = 8, per_minute = 500}

    [models."code.fast".tenants.acme]   # what is another for this tenant: its own key, its own server
    api_key_file = "/run/secrets/acme"

    [models.budgets]
    acme = {per_day = "5.00"}           # in the unit of the prices; "*" for every other tenant

Keys are named here and never kept: the model gateway reads the variable or the file when it needs the key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args
from urllib.parse import urlsplit

from podium.address import check_tenant
from podium.errors import InvalidAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.canonical import Json, JsonObject

__all__ = [
    "ANY_TENANT",
    "BUDGETS",
    "Execution",
    "Limits",
    "ModelsConfig",
    "Price",
    "Profile",
    "ProviderName",
    "check_models",
]

ProviderName = Literal["openai", "openai-responses", "anthropic", "scripted"]
Execution = Literal["managed", "byok", "byoc", "hybrid"]
"""Whose key and server answer: the home's key at a vendor, a caller's own key at a vendor, a server of one's own, or a
server of one's own beside a vendor."""
BUDGETS: Final = "budgets"
"""The key of the table ``models`` that is no profile."""
ANY_TENANT: Final = "*"
_PROVIDERS: Final = get_args(ProviderName)
_CACHES: Final = ("short", "long")
_EXECUTIONS: Final = get_args(Execution)
_PROMPT_CACHES: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": ("breakpoints", "retention", "off"),
    "openai-responses": ("breakpoints", "retention", "off"),
    "anthropic": ("breakpoints", "off"),
    "scripted": (),
}
"""How a provider can be told the cache hints; by default it decides by server and model."""
_VENDORS: Final = ("api.openai.com", "api.anthropic.com")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_TOKENS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Decimal numbers for a million tokens, in a unit of the project's choice."""

    input: str
    output: str
    cached: str | None = None
    """Of the input that the provider's cache had; by default as ``input``."""
    cache_write: str | None = None
    """Of the input that the provider wrote to its cache; by default as ``input``."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a profile, over all tenants; ``None`` for none."""

    concurrent: int | None = None
    per_minute: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """How a model is reached."""

    name: str
    provider: ProviderName
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = None
    """Absolute."""
    script: str | None = None
    """The file of a scripted model's answers, absolute; without one it repeats what it is told."""
    fallbacks: tuple[str, ...] = ()
    emergency_fallback: str | None = None
    """The profile that is asked when this one has failed, and all its fallbacks."""
    execution: Execution = "managed"
    max_output_tokens: int | None = None
    cache: Literal["short", "long"] | None = None
    """The prompt cache hint of messages that have none."""
    prompt_cache: str | None = None
    """How the server is told hints: ``breakpoints``, ``retention`` or ``off``; by default only the vendor's is told."""
    extra: Mapping[str, Json] = field(default_factory=dict)
    """Further fields of each request, as the provider has them."""
    timeout_s: float | None = None
    """Seconds without anything from the provider after which an attempt fails."""
    price: Price | None = None
    limits: Limits = field(default_factory=Limits)
    tenants: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Keys with other values for a tenant: some of ``model``, ``base_url``, ``api_key_env``, ``api_key_file``. With a
    ``base_url`` and no key of its own, its calls are sent without a key."""

    def of_tenant(self, tenant: str) -> Profile:
        """Return the profile as it is for a tenant.

        A server of its own never gets the key of the home, and what has a key or a server of its own has no emergency
        fallback.
        """
        own: dict[str, Any] = dict(self.tenants.get(tenant, {}))
        if not own.keys().isdisjoint({"base_url", "api_key_env", "api_key_file"}):
            execution = "byoc" if "base_url" in own else "byok"
            own = {"api_key_env": None, "api_key_file": None, "emergency_fallback": None, "execution": execution, **own}
        return replace(self, **own)


@dataclass(frozen=True, slots=True)
class ModelsConfig:
    """The table ``[models]`` of a project."""

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    budgets: Mapping[str, str] = field(default_factory=dict)
    """Budgets: cost of the calls of a tenant in a day, UTC; `ANY_TENANT` for each one that is not named."""

    @property
    def key_variables(self) -> frozenset[str]:
        """The variables that have keys: no agent's process gets them."""
        named = {profile.api_key_env for profile in self.profiles.values()}
        named |= {own.get("api_key_env") for profile in self.profiles.values() for own in profile.tenants.values()}
        return frozenset(name for name in named if name)

    def budget(self, tenant: str) -> Decimal | None:
        """Return the budget of a tenant for a day; ``None`` without one."""
        found = self.budgets.get(tenant, self.budgets.get(ANY_TENANT))
        return Decimal(found) if found is not None else None

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: JsonObject) -> ModelsConfig:
        """Return what `to_json` gave."""
        profiles = {}
        for name, given in cast("dict[str, Any]", value["profiles"]).items():
            price = Price(**given["price"]) if given["price"] is not None else None
            parts = {
                **given,
                "fallbacks": tuple(given["fallbacks"]),
                "price": price,
                "limits": Limits(**given["limits"]),
            }
            profiles[name] = Profile(**parts)
        return cls(profiles, cast("dict[str, str]", value["budgets"]))


def check_models(table: Mapping[str, Any], directory: Path) -> tuple[ModelsConfig, tuple[str, str] | None]:
    """Check the table ``models`` of a project file.

    Args:
        directory: of the project file; paths are relative to it.

    Returns:
        the profiles and budgets, and the key and the reason of the first problem, if there is one.
    """
    try:
        return _Reader(directory).read(table), None
    except _Problem as problem:
        return ModelsConfig(), (problem.key, problem.reason)


class _Problem(Exception):
    def __init__(self, key: str, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key
        self.reason = reason


class _Reader:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._readers: dict[str, Callable[[str, Any], Any]] = {
            "provider": self._provider,
            "model": _text,
            "base_url": _url,
            "api_key_env": _variable,
            "api_key_file": self._path,
            "script": self._file,
            "fallbacks": _names,
            "emergency_fallback": _text,
            "execution": _execution,
            "max_output_tokens": _whole,
            "cache": _cache,
            "prompt_cache": _text,
            "extra": _fields,
            "timeout_s": _seconds,
            "price": self._price,
            "limits": self._limits,
            "tenants": self._tenants,
        }
        self._of_tenants = ("model", "base_url", "api_key_env", "api_key_file")

    def read(self, table: Mapping[str, Any]) -> ModelsConfig:
        budgets = self._budgets(f"models.{BUDGETS}", table.get(BUDGETS, {}))
        profiles = {name: self._profile(name, given) for name, given in table.items() if name != BUDGETS}
        for name, profile in profiles.items():
            named = {f"fallbacks[{at}]": other for at, other in enumerate(profile.fallbacks)}
            if profile.emergency_fallback is not None:
                named["emergency_fallback"] = profile.emergency_fallback
            for key, other in named.items():
                if other == name or other not in profiles:
                    why = "it is the profile itself" if other == name else f"there is no profile {other!r}"
                    others = ", ".join(sorted(profiles.keys() - {name})) or "none yet"
                    raise _Problem(f"{_key(name)}.{key}", f"{why}; the other profiles are: {others}")
            if profile.emergency_fallback in profile.fallbacks:
                raise _Problem(f"{_key(name)}.emergency_fallback", "it is among the fallbacks already; remove one")
        return ModelsConfig(profiles, budgets)

    def _profile(self, name: str, given: Any) -> Profile:
        key = _key(name)
        if not _NAME.fullmatch(name):
            raise _Problem(key, "a profile's name has letters, digits and . _ : / - only, 64 at most")
        if not isinstance(given, dict):
            raise _Problem(key, f"write a table [{key}] with provider and model")
        found = self._read_keys(key, given, tuple(self._readers))
        if "provider" not in found:
            raise _Problem(f"{key}.provider", f"it is missing; write one of {', '.join(map(repr, _PROVIDERS))}")
        profile = Profile(name, **found)
        _check_keys(key, profile.api_key_env, profile.api_key_file)
        if profile.execution == "byok" and profile.emergency_fallback is not None:
            raise _Problem(f"{key}.emergency_fallback", 'what runs on a caller\'s own key ("byok") has none; remove it')
        if profile.provider == "scripted":
            for what in ("base_url", "api_key_env", "api_key_file"):
                if getattr(profile, what) is not None:
                    raise _Problem(f"{key}.{what}", "a scripted model calls no server; remove it")
            if profile.extra:
                raise _Problem(f"{key}.extra", "a scripted model sends no request; remove it")
        elif not profile.model:
            raise _Problem(f"{key}.model", "it is missing; write the provider's name of the model")
        elif profile.script is not None:
            raise _Problem(f"{key}.script", 'only provider = "scripted" has a script; remove it')
        _check_prompt_cache(key, profile)
        return profile

    def _read_keys(self, key: str, given: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
        for name in given:
            if name not in known:
                raise _Problem(f"{key}.{name}", f"there is no such key; the keys are {', '.join(known)}")
        return {name: self._readers[name](f"{key}.{name}", value) for name, value in given.items()}

    def _provider(self, key: str, value: Any) -> str:
        if value not in _PROVIDERS:
            raise _Problem(key, f"{value!r} cannot be used; write one of {', '.join(map(repr, _PROVIDERS))}")
        return str(value)

    def _path(self, key: str, value: Any) -> str:
        return str(self._directory / Path(_text(key, value)).expanduser())

    def _file(self, key: str, value: Any) -> str:
        path = Path(self._path(key, value))
        if not path.is_file():
            raise _Problem(key, f"there is no file {path}; write the model's answers into it, or remove the key")
        return str(path)

    def _price(self, key: str, value: Any) -> Price:
        names = ("input", "output", "cached", "cache_write")
        if not isinstance(value, dict) or not {"input", "output"} <= set(value):
            raise _Problem(key, 'write {input = "0.25", output = "2.00"}, for a million tokens')
        for name in value:
            if name not in names:
                raise _Problem(f"{key}.{name}", f"there is no such price; the prices are {', '.join(names)}")
        return Price(**{name: _amount(f"{key}.{name}", each) for name, each in value.items()})

    def _limits(self, key: str, value: Any) -> Limits:
        names = ("concurrent", "per_minute")
        if not isinstance(value, dict):
            raise _Problem(key, "write {concurrent = 8, per_minute = 500}, or one of them")
        for name in value:
            if name not in names:
                raise _Problem(f"{key}.{name}", f"there is no such limit; the limits are {', '.join(names)}")
        return Limits(**{name: _whole(f"{key}.{name}", each) for name, each in value.items()})

    def _tenants(self, key: str, value: Any) -> dict[str, dict[str, str]]:
        if not isinstance(value, dict):
            raise _Problem(key, f"write a table [{key}.NAME] for a tenant")
        found = {}
        for tenant, given in value.items():
            _check_tenant(f"{key}.{tenant}", tenant)
            if not isinstance(given, dict):
                raise _Problem(f"{key}.{tenant}", f"write a table [{key}.{tenant}]")
            own = self._read_keys(f"{key}.{tenant}", given, self._of_tenants)
            _check_keys(f"{key}.{tenant}", own.get("api_key_env"), own.get("api_key_file"))
            found[tenant] = own
        return found

    def _budgets(self, key: str, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise _Problem(key, f'write a table [{key}] with TENANT = {{per_day = "5.00"}}')
        found = {}
        for tenant, given in value.items():
            if tenant != ANY_TENANT:
                _check_tenant(f"{key}.{tenant}", tenant)
            if not isinstance(given, dict) or set(given) != {"per_day"}:
                raise _Problem(f"{key}.{tenant}", 'write {per_day = "5.00"}')
            found[tenant] = _amount(f"{key}.{tenant}.per_day", given["per_day"])
        return found


def _key(name: str) -> str:
    return f"models.{name}" if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'models."{name}"'


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _Problem(key, "write text, in quotes")
    return value


def _url(key: str, value: Any) -> str:
    text = _text(key, value)
    try:
        parts = urlsplit(text)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None
    except ValueError:
        good = False
    if not good:
        raise _Problem(key, 'write the URL of a server, such as "http://127.0.0.1:11434/v1", without a key in it')
    return text


def _variable(key: str, value: Any) -> str:
    text = _text(key, value)
    if not _VARIABLE.fullmatch(text):
        raise _Problem(key, "write the name of an environment variable; the key itself does not belong into this file")
    return text


def _names(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _Problem(key, 'write a list of profiles: ["other"]')
    return tuple(dict.fromkeys(value))


def _whole(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_TOKENS:
        raise _Problem(key, f"{value!r} is not a whole number from 1 to {_MAX_TOKENS}")
    return value


def _cache(key: str, value: Any) -> str:
    if value not in _CACHES:
        raise _Problem(key, 'write "short" or "long"')
    return str(value)


def _fields(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Problem(key, 'write {reasoning_effort = "low"}: fields of the provider\'s request')
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _Problem(key, f"it cannot be sent as JSON: {error}") from None
    return value


def _execution(key: str, value: Any) -> str:
    if value not in _EXECUTIONS:
        raise _Problem(key, f"{value!r} cannot be used; write one of {', '.join(map(repr, _EXECUTIONS))}")
    return str(value)


def _seconds(key: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 86_400:
        raise _Problem(key, "write a number of seconds")
    return float(value)


def _amount(key: str, value: Any) -> str:
    try:
        amount = Decimal(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite() or amount < 0:
        raise _Problem(key, f'{value!r} is not an amount; write a decimal number: "0.25"')
    return format(amount, "f")


def _check_keys(key: str, variable: str | None, file: str | None) -> None:
    if variable is not None and file is not None:
        raise _Problem(f"{key}.api_key_file", "api_key_env is there, too; remove one of them")


def _check_prompt_cache(key: str, profile: Profile) -> None:
    """Refuse a hint that the provider would drop, and a way to tell it that the provider does not have."""
    ways = _PROMPT_CACHES[profile.provider]
    if profile.prompt_cache is not None and profile.prompt_cache not in ways:
        known = f"write one of {', '.join(map(repr, ways))}" if ways else "a scripted model has no cache; remove it"
        raise _Problem(f"{key}.prompt_cache", f"{profile.prompt_cache!r} cannot be used; {known}")
    if profile.cache is not None and profile.prompt_cache is None and not _is_vendors(profile):
        raise _Problem(
            f"{key}.cache",
            f"only the vendor's own servers are told it, and {profile.base_url} is none: say how with prompt_cache = "
            f"{' or '.join(json.dumps(way) for way in ways if way != 'off')}, or remove cache",
        )


def _is_vendors(profile: Profile) -> bool:
    """Return whether a profile's server is that of the vendor; so is a scripted model."""
    host = (urlsplit(profile.base_url).hostname or "") if profile.base_url is not None else ""
    return not host or any(host == own or host.endswith(f".{own}") for own in _VENDORS)


def _check_tenant(key: str, tenant: str) -> None:
    try:
        check_tenant(tenant)
    except InvalidAddress as error:
        raise _Problem(key, str(error)) from None
