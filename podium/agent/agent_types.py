"""The type of an agent class: the first part of its agents' addresses."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["agent_type_of"]


def agent_type_of(cls: type[Any]) -> str:
    """Return an agent class's type: ``agent_type``, else its State's ``_entity_type``, else its name in snake_case."""
    declared: str = cls.agent_type or cls.State._entity_type  # noqa: SLF001  the documented way to declare it
    return declared or re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
