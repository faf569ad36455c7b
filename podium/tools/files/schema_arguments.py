"""Arguments of tools whose schema is written down, rather than made from a signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.answer_schema import check_answer
from podium.errors import DecisionInvalid
from podium.tools.tool_spec import BadArguments

if TYPE_CHECKING:
    from chronicle.canonical import JsonObject

__all__ = ["SchemaArguments"]


@dataclass(frozen=True, slots=True)
class SchemaArguments:
    """The schema of the arguments of a tool."""

    schema: JsonObject

    def check(self, arguments: JsonObject) -> None:
        """Check arguments, by the code that checks decisions.

        Raises:
            BadArguments: they do not fit.
        """
        try:
            check_answer(self.schema, arguments)
        except DecisionInvalid as error:
            raise BadArguments(error.errors or (str(error),)) from None
