"""Base of all results, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from coordinator.client.errors import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Result", "read_result"]


class Result(BaseModel):
    """A JSON object of the wire."""

    model_config = ConfigDict(frozen=True, extra="ignore")


_R = TypeVar("_R", bound=Result)


def read_result(kind: type[_R], value: Mapping[str, Any]) -> _R:
    """Return a JSON object of the wire as a result.

    Raises:
        BadAnswer: a key is missing or has another type.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadAnswer(
            f"the answer is no {kind.__name__}: {place}: {first['msg'].lower()}; is there a podium of another version?"
        ) from error
