"""Validation of the table ``[settings]`` of a project file."""

from __future__ import annotations

from typing import Final, get_args, get_origin

from pydantic import ValidationError

from coordinator.settings import Settings

__all__ = ["check_setting"]

_KEYS: Final = {"blobs_url": "blobs", "journal_url": "journal"}
"""The settings that are keys of the file."""


def check_setting(name: str, value: object) -> str | None:
    """Return what is wrong with a setting of a project file and how to mend it; ``None`` if it is valid.

    Args:
        name: of `Settings`, without the prefix of its variable.
        value: as TOML gives it.
    """
    if name in _KEYS:
        return f'write {_KEYS[name]} = "URL" above all tables instead'
    fields = {name: field for name, field in Settings.model_fields.items() if name not in _KEYS}
    if name not in fields:
        return f"there is no such setting; the settings are {', '.join(sorted(fields))}"
    annotation = fields[name].annotation
    numeric = annotation in (int, float)
    if numeric and (isinstance(value, bool) or not isinstance(value, int | float)):
        return "write a number, without quotes"
    if not numeric and not isinstance(value, str):
        choices = get_args(annotation) if get_origin(annotation) is not None else ()
        return f"write one of {', '.join(map(repr, choices))}" if choices else "write text, in quotes"
    try:
        Settings(**{name: value})  # type: ignore[arg-type]
    except ValidationError as error:
        own = [each["msg"] for each in error.errors() if each["loc"][0] == name]
        return f"{value!r} cannot be used: {own[0].lower()}" if own else None
    return None
