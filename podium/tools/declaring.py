"""`tool`: the decorator that declares a function as a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack, overload

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from podium.answer_schema import check_schema
from podium.errors import DecisionInvalid, InvalidTool
from podium.tools.functions import function_tool, place_of
from podium.tools.tool_spec import CONSENT_MODES, Tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from chronicle.canonical import Json
    from podium.agent.retry import Retry
    from podium.tools.tool_spec import RunsAt

    class Router(Protocol):
        """A `podium.tools.ToolRouter`."""

        def add(self, added: Tool) -> Tool:
            """Add a tool."""
            ...

    class Declares(Protocol):
        """The decorator that ``tool(...)`` returns."""

        def __call__(self, function: F, /) -> F:
            """Make a function a tool."""
            ...


__all__ = ["ToolOptions", "declared", "tool"]

F = TypeVar("F", bound="Callable[..., Any]")

_TOOL: Final = "__podium_tool__"


class ToolOptions(TypedDict, total=False):
    """The options of a tool."""

    name: str
    """For the model; by default the function's."""
    description: str
    """For the model; by default the docstring up to its sections."""
    mode: str
    """``read`` (calls may overlap; the state must not be changed), ``write`` (the default), ``safe_write``, ``local``,
    ``destructive``, ``external``. Another word is kept, and counts as ``write``."""
    requires_approval: bool
    """Whether a person has to approve each call. A router refuses such calls until it can ask."""
    decision: Any
    """What a person has to decide before it runs: a type that pydantic knows, or a JSON Schema. A router refuses such
    calls until it can ask."""
    timeout_s: float | None
    """Longest time of a call, in seconds; ``None`` for no limit. A plain function is left alone then."""
    retry: Retry | None
    """How often it is tried, and when; by default once."""
    runs: RunsAt
    """``client`` for a tool that the client of the agent has; a router refuses to call it."""
    require_consent: bool | None
    """Whether a call needs ``consent_granted``; by default of the modes ``local`` and ``destructive``."""
    no_resume: bool
    """Whether a run that is repeated from its record must not call it again."""
    steps: bool
    """Whether it begins steps of its own, by ``ctx.ask``, ``ctx.step`` or ``ctx.llm``: it is then code of the hook,
    whose rules it keeps, with neither ``timeout_s`` nor ``retry``, and in another mode than ``read``."""


@overload
def tool(function: F, /) -> F: ...


@overload
def tool(*, router: Router | None = ..., **options: Unpack[ToolOptions]) -> Declares: ...


def tool(function: Any = None, /, *, router: Router | None = None, **options: Unpack[ToolOptions]) -> Any:
    """Declare a function as a tool that a model may call. The function itself stays as it is.

    Its parameters are what the model gives: each has an annotation, of which pydantic makes the JSON Schema, and its
    description in the docstring. A parameter named ``ctx`` gets the `podium.AgentContext` of the turn instead. A plain
    function runs in a thread of its own. An async generator yields what it has so far; what it yields last is the
    result.

    Args:
        router: gets the tool; without one the function is added by `ToolRouter.add`, or found in its file.
        options: see `ToolOptions`.

    Raises:
        InvalidTool: it cannot be a tool, or the router has one of that name; the message says where.
    """

    def declare(decorated: Any) -> Any:
        implementation, told, parameters = function_tool(decorated)
        place = place_of(decorated)
        if unknown := options.keys() - ToolOptions.__annotations__.keys():
            raise InvalidTool(f"{place}: a tool has no option {min(unknown)}")
        if options.get("steps") and options.get("retry") is not None:
            raise InvalidTool(f"{place}: a tool with steps=True is not tried again as a whole: give retry to its steps")
        if options.get("steps") and options.get("mode") == "read":
            raise InvalidTool(f"{place}: a tool with steps=True can change the state: give it another mode than read")
        given: dict[str, Any] = {
            "name": decorated.__name__,
            "description": told,
            **options,
            "decision": _schema_of(options.get("decision"), place),
        }
        if given.get("require_consent") is None:
            given["require_consent"] = given.get("mode") in CONSENT_MODES
        made = Tool(parameters=parameters, implementation=implementation, place=place, **given)
        setattr(decorated, _TOOL, made)
        if router is not None:
            router.add(made)
        return decorated

    return declare if function is None else declare(function)


def declared(function: object) -> Tool | None:
    """Return the tool that a function was declared as; ``None`` if it was not."""
    found = getattr(function, _TOOL, None)
    return found if isinstance(found, Tool) else None


def _schema_of(decision: Any, place: str) -> Json:
    if decision is None:
        return None
    try:
        schema: Json = decision if isinstance(decision, dict | bool) else TypeAdapter(decision).json_schema()
        check_schema(schema)
    except (DecisionInvalid, PydanticUserError) as error:
        raise InvalidTool(f"{place}: its decision has no JSON Schema that can be used: {error}") from error
    return schema
