"""Providers of profiles: made when a profile is first called, with the key as it is then. Keys stay in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from podium.models.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coordinator.models.profiles import Profile

__all__ = ["key_of"]


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
