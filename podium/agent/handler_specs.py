"""The handlers of an agent class: their arguments and results, their schemas, and how a message becomes a call.

It runs where the class is: in hosts, in the inspector, and in programs that import it to call its handlers.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Discriminator, TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import ValidationError, to_json

from podium.agent.handlers import HANDLER, INPUT, check_way, is_handler, is_read_only, retry_of, takes_dicts
from podium.agent.retry import Retry
from podium.errors import InvalidMessage, NotAnAgent, Permanent, UnknownHandler
from podium.sorted_sets import with_sorted_sets
from podium.validation import first_problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from chronicle.canonical import Json, JsonObject

__all__ = ["HandlerSpec", "call_for", "handlers_of", "interface_of", "policy_for", "policy_of", "read_only_handler"]

_SPECS: Final = "__podium_handlers__"
_DELAY_S: Final = 0.2
"""Delay before the second attempt of a message: outlasts a transient fault, not felt as a hang."""
_MAX_DELAY_S: Final = 1.0
"""Delay before any later attempt."""
_BACKOFF: Final = 5.0


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """A handler of a class."""

    name: str
    input: TypeAdapter[Any]
    result: TypeAdapter[Any] | None
    """``None`` if it has no result."""
    read_only: bool = False

    def message(self, argument: object) -> JsonObject:
        """Return the message that calls it.

        Raises:
            InvalidMessage: the argument does not fit.
        """
        try:
            fits = self.input.validate_python(argument)
        except ValidationError as error:
            place, reason = first_problem(error, argument)
            raise InvalidMessage(reason, ".".join(("message", INPUT, *place))) from None
        dumped = self.input.dump_python(fits, mode="json", by_alias=True, round_trip=True)
        return {HANDLER: self.name, INPUT: with_sorted_sets(fits, dumped)}

    def argument(self, message: Mapping[str, Any]) -> Any:
        """Return the argument that a message has.

        Raises:
            InvalidMessage: it does not fit.
        """
        value = message.get(INPUT, {})
        try:
            return self.input.validate_json(to_json(value))
        except ValidationError as error:
            place, reason = first_problem(error, value)
            raise InvalidMessage(reason, ".".join(("message", INPUT, *place))) from None

    def plain_result(self, value: object) -> Json:
        """Return what the handler returned as JSON.

        Raises:
            Permanent: it is not of the annotated type.
        """
        assert self.result is not None, "it has a result"
        try:
            plain: Json = self.result.dump_python(self.result.validate_python(value), mode="json", by_alias=True)
        except ValidationError as error:
            raise Permanent(f"{self.name} returned something else than its annotation says: {error}") from None
        return plain

    def typed_result(self, data: Json) -> Any:
        """Return the result that an answer has as JSON.

        Raises:
            ValidationError: the agent runs with another class.
        """
        return self.result.validate_json(to_json(data)) if self.result is not None else None


def handlers_of(cls: type[Any]) -> Mapping[str, HandlerSpec]:
    """Return the handlers of a class, by name.

    Raises:
        NotAnAgent: one cannot be used; the message tells why.
    """
    found: dict[str, HandlerSpec] | None = cls.__dict__.get(_SPECS)
    if found is None:
        found = {name: _spec(cls, name) for name in dir(cls) if is_handler(inspect.getattr_static(cls, name))}
        setattr(cls, _SPECS, found)
    return found


def interface_of(cls: type[Any]) -> JsonObject:
    """Return the handlers of a class with their schemas, for those who send messages; empty if it has none."""
    handlers = handlers_of(cls)
    if not handlers:
        return {}
    described: JsonObject = {
        name: {
            "input": spec.input.json_schema(),
            "result": spec.result.json_schema(mode="serialization") if spec.result is not None else None,
            **({"read_only": True} if spec.read_only else {}),
        }
        for name, spec in handlers.items()
    }
    return {"handlers": described, "on_message": takes_dicts(cls)}


def policy_for(cls: type[Any], message: Mapping[str, Any]) -> Retry:
    """Return how often a message is attempted, and when: as its handler says, or its class."""
    handlers = handlers_of(cls)
    name = message.get(HANDLER) if handlers else None
    own = retry_of(getattr(cls, name)) if isinstance(name, str) and name in handlers else None
    return own or policy_of(cls)


def policy_of(cls: type[Any]) -> Retry:
    """Return how often a class has messages attempted, and when."""
    policy: Retry | None = cls.retry
    return policy or Retry(cls.max_attempts, _DELAY_S, _BACKOFF, _MAX_DELAY_S)


def call_for(agent: Any, message: dict[str, Any]) -> tuple[str, Callable[[Any], Awaitable[None]]]:
    """Return the name of the method that handles a message, and its call.

    A message is checked by the call, so that one that does not fit fails as the turn that handles it.
    """
    handlers = handlers_of(type(agent))
    if not handlers or (HANDLER not in message and takes_dicts(type(agent))):
        return "on_message", lambda ctx: agent.on_message(ctx, message)

    async def call(ctx: Any) -> None:
        spec = _called(handlers, message)
        check_way(spec.name, message_is_read=False, handler_reads=spec.read_only)
        result = await getattr(agent, spec.name)(ctx, spec.argument(message))
        if spec.result is not None:
            ctx.reply(spec.plain_result(result))

    name = message.get(HANDLER)
    return name if isinstance(name, str) and name in handlers else HANDLER, call


def read_only_handler(cls: type[Any], message: dict[str, Any]) -> tuple[HandlerSpec, Any]:
    """Return the read-only handler that a message names, and its argument.

    Raises:
        InvalidMessage: it names none, or does not fit.
    """
    spec = _called(handlers_of(cls), message)
    check_way(spec.name, message_is_read=True, handler_reads=spec.read_only)
    return spec, spec.argument(message)


def _called(handlers: Mapping[str, HandlerSpec], message: Mapping[str, Any]) -> HandlerSpec:
    name = message.get(HANDLER)
    spec = handlers.get(name) if isinstance(name, str) else None
    if spec is None:
        what = f"there is no handler {name!r}" if HANDLER in message else "no handler is named"
        known = ", ".join(handlers) or "none"
        raise UnknownHandler(f"{what}; the handlers are {known}", f"message.{HANDLER}")
    if unknown := message.keys() - {HANDLER, INPUT}:
        raise InvalidMessage(f"a message for a handler has {HANDLER} and {INPUT} only", f"message.{min(unknown)}")
    return spec


def _spec(cls: type[Any], name: str) -> HandlerSpec:
    method = getattr(cls, name)
    code = getattr(method, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    where = f"class {cls.__name__}: handler {name}{place}"
    fix = f"write 'async def {name}(self, ctx, message: Model) -> Result'"
    if not inspect.iscoroutinefunction(method):
        raise NotAnAgent(f"{where} is not async; {fix}")
    parameters = list(inspect.signature(method).parameters.values())
    if len(parameters) != 3 or any(each.kind is not each.POSITIONAL_OR_KEYWORD for each in parameters):
        raise NotAnAgent(f"{where} takes other arguments than a context and a message; {fix}")
    annotation, returned = _annotations(cls, method, parameters[2].name, where)
    if annotation is None:
        raise NotAnAgent(f"{where}: {parameters[2].name} has no annotation; {fix}")
    _check_argument(annotation, f"{where}: {parameters[2].name}")
    return HandlerSpec(
        name,
        _adapter(annotation, f"{where}: {parameters[2].name}", "validation"),
        _adapter(returned, f"{where}: its result", "serialization") if returned is not NoneType else None,
        is_read_only(method),
    )


def _annotations(cls: type, method: Any, parameter: str, where: str) -> tuple[Any, Any]:
    """Return the types of a handler's argument, ``None`` without one, and of its result."""
    wanted = {key: value for key, value in method.__annotations__.items() if key in {parameter, "return"}}
    try:
        hints = get_type_hints(SimpleNamespace(__annotations__=wanted), method.__globals__, dict(vars(cls)), True)
    except Exception as error:
        raise NotAnAgent(
            f"{where}: its annotations cannot be read: {error}; import what they name at run time, not under "
            "'if TYPE_CHECKING'"
        ) from error
    return hints.get(parameter), hints.get("return", Any)


def _check_argument(annotation: Any, where: str) -> None:
    """Check that a type is a model, or a union of models with a discriminator."""
    origin, members, discriminated = get_origin(annotation), [annotation], True
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        discriminated = any(
            isinstance(each, Discriminator) or (isinstance(each, FieldInfo) and each.discriminator is not None)
            for each in metadata
        )
        annotation, origin, members = inner, get_origin(inner), [inner]
    elif origin in {Union, UnionType}:
        discriminated = False
    if origin in {Union, UnionType}:
        members = [get_args(each)[0] if get_origin(each) is Annotated else each for each in get_args(annotation)]
        if not discriminated:
            names = " | ".join(getattr(each, "__name__", str(each)) for each in members)
            raise NotAnAgent(
                f"{where} is a union without a discriminator; write Annotated[{names}, Field(discriminator='kind')], "
                "with a Literal of that name in each model"
            )
    if not all(inspect.isclass(each) and issubclass(each, BaseModel) for each in members):
        raise NotAnAgent(f"{where} is no pydantic model; give a class that inherits from pydantic.BaseModel")


def _adapter(annotation: Any, where: str, mode: Any) -> TypeAdapter[Any]:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        adapter.json_schema(mode=mode)
    except (PydanticUserError, TypeError, ValueError) as error:
        first, _, _ = str(error).partition("\n")
        raise NotAnAgent(f"{where} has no JSON Schema: {first}") from error
    return adapter
