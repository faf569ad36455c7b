"""Functions of Python as tools: the schema of a signature, and calls of functions, async or not."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning
from pydantic_core import PydanticSerializationError, to_json

from podium.errors import InvalidTool
from podium.tools.docstrings import read_docstring
from podium.tools.threads import in_thread
from podium.tools.tool_spec import BadArguments
from podium.validation import place_in, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from chronicle.canonical import JsonObject

__all__ = ["FunctionTool", "function_tool", "place_of"]

CONTEXT: Final = "ctx"
"""The parameter that gets the context of the turn, and is not in the schema."""
_MAX_PROBLEMS: Final = 8


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function as the `podium.tools.tool_spec.Implementation` of a tool."""

    function: Callable[..., Any]
    model: type[BaseModel]
    names: Sequence[str]
    """The parameters, in the order of the fields of the model."""
    needs_context: bool
    blocks: bool
    """Whether it is a plain function, which gets a thread."""

    def bind(self, arguments: JsonObject) -> Mapping[str, object]:
        """See `podium.tools.tool_spec.Implementation`."""
        try:
            found = self.model.model_validate_json(to_json(arguments))
        except ValidationError as error:
            raise BadArguments(
                tuple(map(_problem(arguments), error.errors(include_url=False)[:_MAX_PROBLEMS]))
            ) from None
        except (PydanticSerializationError, ValueError) as error:
            raise BadArguments((f"the arguments are no JSON: {error}",)) from None
        return {name: getattr(found, _field(number)) for number, name in enumerate(self.names)}

    def call(self, bound: Mapping[str, object], context: object) -> object:
        """See `podium.tools.tool_spec.Implementation`."""
        given = {**bound, CONTEXT: context} if self.needs_context else bound
        if self.blocks:
            return in_thread(lambda: self.function(**given), f"tool {self.function.__name__}")
        return self.function(**given)


def function_tool(function: Callable[..., Any]) -> tuple[FunctionTool, str, JsonObject]:
    """Return a function as an implementation, its description, and the JSON Schema of its arguments.

    Raises:
        InvalidTool: it cannot be a tool; the message says where it is, and how to mend it.
    """
    where = f"{place_of(function)}: tool {getattr(function, '__name__', function)!s}"
    if not inspect.isfunction(function):
        raise InvalidTool(f"{where}: a tool is a function, 'def' or 'async def', not a {type(function).__name__}")
    if inspect.isgeneratorfunction(function):
        raise InvalidTool(f"{where} is a plain generator; write 'async def' for one that yields what it has so far")
    parameters = list(inspect.signature(function).parameters.values())
    description, told = read_docstring(function.__doc__)
    hints = _hints(function, where)
    fields: dict[str, Any] = {}
    names: list[str] = []
    for each in parameters:
        if each.kind not in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}:
            raise InvalidTool(f"{where}: {each} is not a parameter that a model can give; take them by name")
        if each.name == CONTEXT:
            continue
        if each.name not in hints:
            raise InvalidTool(f"{where}: {each.name} has no annotation; write such as '{each.name}: str'")
        default = ... if each.default is each.empty else each.default
        fields[_field(len(names))] = (_annotated(hints[each.name], each.name, told.get(each.name)), default)
        names.append(each.name)
    model, schema = _model(fields, where)
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    needs_context = any(each.name == CONTEXT for each in parameters)
    return FunctionTool(function, model, names, needs_context, not is_async), description, schema


def place_of(function: object) -> str:
    """Return where a function is declared: file and line."""
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


class _Schema(GenerateJsonSchema):
    """A schema for models: without the titles that only repeat names, which cost tokens."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  as the base class has it

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def _field(number: int) -> str:
    """Return the name of a field: those of parameters may be names of pydantic's."""
    return f"p{number}"


def _annotated(annotation: Any, name: str, description: str | None) -> Any:
    if description is not None and not any(
        getattr(each, "description", None) for each in getattr(annotation, "__metadata__", ())
    ):
        return Annotated[annotation, Field(alias=name, description=description)]
    return Annotated[annotation, Field(alias=name)]


def _model(fields: dict[str, Any], where: str) -> tuple[type[BaseModel], JsonObject]:
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)
        schema = model.model_json_schema(schema_generator=_Schema)
    except (PydanticUserError, PydanticJsonSchemaWarning, TypeError, ValueError, NameError) as error:
        first, _, _ = str(error).partition("\n")
        raise InvalidTool(
            f"{where}: its parameters have no JSON Schema: {first}; a parameter named {CONTEXT} gets the "
            "context of the turn"
        ) from error
    del schema["title"]
    return model, schema


def _hints(function: Any, where: str) -> Mapping[str, Any]:
    wanted = {key: value for key, value in function.__annotations__.items() if key not in {CONTEXT, "return"}}
    try:
        return get_type_hints(SimpleNamespace(__annotations__=wanted), function.__globals__, None, True)
    except Exception as error:
        raise InvalidTool(
            f"{where}: its annotations cannot be read: {error}; import what they name at run time, not under "
            "'if TYPE_CHECKING', and define it at the top of a module"
        ) from error


def _problem(arguments: JsonObject) -> Callable[[Any], str]:
    def text(error: Any) -> str:
        place = ".".join(place_in(error["loc"], arguments)) or "the arguments"
        return f"{place}: {reason_of(error['msg'])}"

    return text
