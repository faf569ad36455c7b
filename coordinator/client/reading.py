"""The answers of a server, read as results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from coordinator.client.errors import BadAnswer
from coordinator.operations.objects.result import Result, read_result

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_answer"]

_R = TypeVar("_R", bound=Result)


def read_answer(kind: type[_R], value: Mapping[str, Any]) -> _R:
    """Return a JSON object of a server as a result.

    Raises:
        BadAnswer: a key is missing or has another type.
    """
    from pydantic import ValidationError  # noqa: PLC0415  slow to import, and a local home needs none

    try:
        return read_result(kind, value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadAnswer(
            f"the answer is no {kind.__name__}: {place}: {first['msg'].lower()}; is there a podium of another version?"
        ) from error
