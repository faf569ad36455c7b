"""Providers of profiles: made when a profile is first called, with the key as it is then. Keys stay in this process."""

from __future__ import annotations

import json
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from chronicle.errors import InvalidInput
from podium.models.errors import ModelError, ProviderNotInstalled
from podium.models.vendor_sdk import SILENCE_TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
    from typing import Self

    from chronicle.canonical import JsonObject
    from coordinator.models.profiles import Profile
    from podium.models.port import LLMMessage, LLMStreamChunk

__all__ = ["Provider", "Providers", "import_libraries", "key_of", "make_provider"]

_MAX_KEPT: Final = 64
"""Providers that are kept for further calls, each with its connections: profiles, times the tenants with own keys."""


class Provider(Protocol):
    """A `podium.models.LLMProvider` that is used for many calls."""

    def for_call(self, *, max_output_tokens: int | None = None, prompt_cache_key: str | None = None) -> Self:
        """Return it with what differs for a call; ``None`` leaves what it has."""
        ...

    def stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Iterable[JsonObject] | None = None,
        temperature: float | None = None,
    ) -> AsyncGenerator[LLMStreamChunk, None]:
        """Send one request; see `podium.models.LLMProvider`."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


class _Kept:
    """A provider, and how many calls use it."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.users = 0


class Providers:
    """The providers of profiles. A profile, or a key, that has changed gets another one.

    Args:
        variables: the environment of the model gateway.
        make: makes one of a profile, as it is for the tenant, and its key.
    """

    def __init__(
        self, variables: Mapping[str, str], make: Callable[[Profile, str | None], Provider] | None = None
    ) -> None:
        self._variables = variables
        self._make = make or make_provider
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()

    @asynccontextmanager
    async def of(self, profile: Profile) -> AsyncIterator[Provider]:
        """Use the provider of a profile, as it is for the tenant.

        Raises:
            ModelError: the key is missing, or the vendor's library.
        """
        key = key_of(profile, self._variables)
        script = _changed_ns(profile.script)
        extra = json.dumps(profile.extra, sort_keys=True)
        same = (profile.name, profile.provider, profile.model, profile.base_url, profile.timeout_s)
        of = (*same, profile.prompt_cache, extra, key, script)
        kept = self._kept.get(of)
        if kept is None:
            kept = self._kept[of] = _Kept(self._make(profile, key))
        self._kept.move_to_end(of)
        kept.users += 1
        try:
            yield kept.provider
        finally:
            kept.users -= 1
            await self._close_oldest()

    async def aclose(self) -> None:
        """Close all."""
        while self._kept:
            _, kept = self._kept.popitem()
            await kept.provider.aclose()

    async def _close_oldest(self) -> None:
        while len(self._kept) > _MAX_KEPT:
            unused = next((of for of, kept in self._kept.items() if not kept.users), None)
            if unused is None:
                return
            await self._kept.pop(unused).provider.aclose()


async def import_libraries(profiles: Iterable[Profile]) -> None:
    """Import what the providers of profiles need, as far as it is installed: a vendor's library takes seconds."""
    for profile in {profile.provider: profile for profile in profiles}.values():
        with suppress(ModelError):  # told to those who call
            await make_provider(profile, "none").aclose()


def make_provider(profile: Profile, key: str | None) -> Provider:
    """Return the provider of a profile. The vendor's library is imported here if `import_libraries` has not done it.

    Raises:
        ModelError: the library is not installed, or the script of a scripted model cannot be used.
    """
    try:
        return _make(profile, key, profile.timeout_s or SILENCE_TIMEOUT_S)
    except ProviderNotInstalled as error:
        raise ModelError(
            f"the profile {profile.name!r} cannot be used: {error}", "unavailable", provider=profile.provider
        ) from error


def _make(profile: Profile, key: str | None, silence_s: float) -> Provider:
    if profile.provider == "scripted":
        return _scripted(profile)
    parts: dict[str, Any] = {
        "base_url": profile.base_url,
        "api_key": key,
        "silence_timeout_s": silence_s,
        "prompt_cache": profile.prompt_cache or "auto",
        "extra": profile.extra,
    }
    if profile.provider == "anthropic":
        from podium.models.anthropic.provider import AnthropicProvider  # noqa: PLC0415

        return AnthropicProvider(profile.model, **parts)
    from podium.models.openai_compat import provider  # noqa: PLC0415

    kind = provider.OpenAICompatProvider if profile.provider == "openai" else provider.OpenAIResponsesProvider
    return kind(profile.model, **parts)


def _changed_ns(script: str | None) -> tuple[str, int] | None:
    """Return the path of a script and when it was changed."""
    if script is None:
        return None
    try:
        return script, Path(script).stat().st_mtime_ns
    except OSError:
        return script, 0


def _scripted(profile: Profile) -> Provider:
    from podium.models.scripted import ScriptedProvider, script_of_file  # noqa: PLC0415

    try:
        script = None if profile.script is None else script_of_file(Path(profile.script))
        return ScriptedProvider(script, model=profile.model or "scripted")
    except InvalidInput as error:
        raise ModelError(f"the profile {profile.name!r}: {error}", "bad_request", provider="scripted") from error


def key_of(profile: Profile, variables: Mapping[str, str]) -> str | None:
    """Return the key of a profile, read now; ``None`` if it names none, as for a server of one's own.

    Args:
        profile: as it is for the tenant.
        variables: the environment of the model gateway.

    Raises:
        ModelError: of the kind ``auth``; the message tells what is missing, and where.
    """
    if profile.api_key_env is not None:
        key = variables.get(profile.api_key_env, "").strip()
        if not key:
            raise ModelError(
                f"the profile {profile.name!r} takes its key from the variable {profile.api_key_env}, which the "
                "service of the home does not have: set it where podium up is run, or in the project's env_file, and "
                "start again (podium down; podium up)",
                "auth",
                provider=profile.provider,
            )
        return key
    if profile.api_key_file is not None:
        try:
            key = Path(profile.api_key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ModelError(
                f"the profile {profile.name!r} takes its key from the file {profile.api_key_file}, which cannot be "
                f"read ({reason}): make it readable for the user of the service, or change api_key_file",
                "auth",
                provider=profile.provider,
            ) from error
        if not key:
            raise ModelError(
                f"the profile {profile.name!r} takes its key from the file {profile.api_key_file}, which is empty: "
                "write the key into it",
                "auth",
                provider=profile.provider,
            )
        return key
    if profile.provider != "scripted" and profile.base_url is None:
        raise ModelError(
            f"the profile {profile.name!r} names no key: give it api_key_env or api_key_file in podium.toml, or the "
            "base_url of a server that needs none, and run podium reload",
            "auth",
            provider=profile.provider,
        )
    return None
