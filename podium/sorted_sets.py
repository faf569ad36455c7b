"""Sets in the JSON of models, in one order: pydantic's is that of hashes, which differ between processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pydantic import BaseModel, RootModel

from chronicle.canonical import encode

if TYPE_CHECKING:
    from chronicle.canonical import Json

__all__ = ["with_sorted_sets"]


def with_sorted_sets(value: object, dumped: Json) -> Json:
    """Return the JSON of a value with the members of its sets sorted.

    Args:
        value: a model, or what one has in it.
        dumped: its JSON, as pydantic gives it. Where that has another form, as of a serializer of one's own, it stays.
    """
    if isinstance(value, RootModel):
        return with_sorted_sets(value.root, dumped)
    if isinstance(dumped, dict):
        if isinstance(value, dict):
            members = dict(zip(dumped, value.values(), strict=False))
        else:
            names = _names(type(value))
            members = {key: getattr(value, names.get(key, key), None) for key in dumped}
        return {key: with_sorted_sets(members.get(key), each) for key, each in dumped.items()}
    if isinstance(dumped, list) and isinstance(value, list | tuple | set | frozenset) and len(value) == len(dumped):
        listed = [with_sorted_sets(member, each) for member, each in zip(value, dumped, strict=True)]
        return cast("Json", sorted(listed, key=encode) if isinstance(value, set | frozenset) else listed)
    return dumped


def _names(kind: type) -> dict[str, str]:
    """Return the names of the fields of a model by their aliases."""
    if not issubclass(kind, BaseModel):
        return {}
    return {field.serialization_alias or name: name for name, field in kind.model_fields.items()}
