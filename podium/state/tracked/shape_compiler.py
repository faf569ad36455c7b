"""Compiles pydantic's core schema of a class to the shapes of its fields.

The core schema is used, not the annotations, because everything in it is resolved: aliases, forward references,
``Annotated`` constraints, field validators, type variables. Each field gets the narrowest shape that is certain to be
right; unknown schemas become `podium.state.tracked.scalars.Coded`, which checks the round trip of each value.
"""

# Not every shape uses all arguments of the protocol.
# ruff: noqa: ARG002
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import CoreSchema, SchemaSerializer, SchemaValidator, core_schema

from podium.state.errors import UnsupportedType
from podium.state.tracked.any_json import ANYTHING
from podium.state.tracked.dicts import CodedKeys, DictShape, KeyShape, TextKeys
from podium.state.tracked.lists import ListShape
from podium.state.tracked.models import ModelShape, TrackedModel
from podium.state.tracked.scalars import Coded, Scalar
from podium.state.tracked.sets import FrozenSetShape, SetShape
from podium.state.tracked.shape_combinators import Checked, Deferred, Nullable, Undeclared, UnionShape
from podium.state.tracked.tuples import TupleShape

if TYPE_CHECKING:
    from podium.state.tracked.shape import Shape

__all__ = ["TRACKS_INSTANCES", "shape_of"]

TRACKS_INSTANCES: Final = "podium_tracks_instances"
"""Metadata key of the function in a state class's schema that makes new instances tracked; it validates nothing."""

_Schema: TypeAlias = Mapping[str, Any]

_SCALARS: Final[Mapping[str, type]] = {"str": str, "int": int, "float": float, "bool": bool, "none": type(None)}
_HARMLESS: Final = frozenset({"type", "metadata", "ref", "strict"})
"""Keys of a core schema that do not constrain a value of the exact type."""
_TRUSTED: Final = frozenset(
    {*_SCALARS, "date", "time", "datetime", "timedelta", "decimal", "uuid", "url", "multi-host-url"}
)
"""Kinds whose values all survive the round trip through JSON."""
_WRAPPERS: Final = frozenset({"function-after", "function-before", "function-wrap"})
_TRANSPARENT: Final = frozenset({"default", "custom-error"})
_EXACT_KEYS: Final[Mapping[str, type]] = {"int": int, "uuid": UUID, "date": date}
_ANY: Final = core_schema.any_schema()
_TEXT_ENCODINGS: Final = frozenset({"base64", "hex"})


def shape_of(cls: type[BaseModel]) -> ModelShape:
    """Return the shape of a model class; the same one every time.

    Raises:
        UnsupportedType: a declared type cannot be stored.
    """
    if cls is BaseModel:
        raise UnsupportedType(
            "BaseModel itself declares no fields, so nothing of its instances would be stored; declare "
            "the class, or a union of the classes, that it may be"
        )
    schema = cls.__pydantic_core_schema__
    if not isinstance(schema, dict):
        cls.model_rebuild()
        schema = cls.__pydantic_core_schema__
    found = cls.__dict__.get("__podium_shape__")
    if found is None or found[0] is not schema:
        found = (schema, _Compiler.of_class(cls, schema).model())
        type.__setattr__(cls, "__podium_shape__", found)
    return cast("ModelShape", found[1])


class _Compiler:
    """Compiles the shapes of one class's fields.

    Args:
        cls: the class.
        schema: its core schema down to the ``model`` itself, without the model's validators.
        definitions: the targets of ``definition-ref``.
        validators: the schemas of the model's own validators, outermost first.
    """

    def __init__(
        self,
        cls: type[BaseModel],
        schema: _Schema,
        definitions: Mapping[str, CoreSchema],
        validators: Sequence[_Schema],
    ) -> None:
        self._cls = cls
        self._validators = validators
        self._schema = schema
        self._refs = definitions
        self._config = schema.get("config") or {}
        self._known: dict[str, Shape] = {}
        self._makers: Mapping[str, Callable[[_Schema], Shape]] = {
            "any": self._any,
            "bytes": self._bytes,
            "chain": self._chain,
            "definition-ref": self._reference,
            "dict": self._dict,
            "frozenset": self._frozenset,
            "json-or-python": self._json_or_python,
            "lax-or-strict": self._lax_or_strict,
            "list": self._list,
            "model": self._model,
            "nullable": self._nullable,
            "set": self._set,
            "tagged-union": self._tagged_union,
            "tuple": self._tuple,
            "typed-dict": self._typed_dict,
            "union": self._union,
        }

    @classmethod
    def of_class(cls, model: type[BaseModel], schema: _Schema) -> _Compiler:
        definitions: dict[str, CoreSchema] = {}
        inner, validators = _model_schema(schema, definitions)
        if inner is None or inner["cls"] is not model:
            raise UnsupportedType(f"{model.__name__} has a pydantic schema of its own making, so it cannot be tracked")
        if "serialization" in inner or "serialization" in schema:
            raise UnsupportedType(f"{model.__name__} has a serializer of its own, so it cannot be tracked")
        for name in ("__setattr__", "__delattr__"):
            if not issubclass(model, TrackedModel) and getattr(model, name) is not getattr(BaseModel, name):
                raise UnsupportedType(
                    f"{model.__name__} defines {name}, which tracked instances have of their own and would not call; "
                    "use a field validator, or a property with a setter"
                )
        return cls(model, inner, definitions, [*validators, *_peel(inner["schema"])[1]])

    def model(self) -> ModelShape:
        fields, _ = _peel(self._schema["schema"])
        own = [layer for layer in self._validators if TRACKS_INSTANCES not in (layer.get("metadata") or {})]
        if self._cls.__pydantic_root_model__:
            fields = core_schema.model_fields_schema({"root": core_schema.model_field(self._schema["schema"])})
        extra_allowed = self._config.get("extra_fields_behavior") == "allow" or fields.get("extra_behavior") == "allow"

        def make_fields() -> dict[str, Shape]:
            found: dict[str, Shape] = {}
            for name, field in fields["fields"].items():
                info = self._cls.model_fields[name]
                if info.exclude and info.is_required():
                    raise UnsupportedType(
                        f"{self._cls.__name__}.{name} is excluded and has no default, so a stored state could never "
                        "be loaded; give it a default"
                    )
                if not info.exclude:
                    found[name] = self.shape(field["schema"])
            return found

        def make_others() -> Shape:
            extras = fields.get("extras_schema")
            return ANYTHING if extras is None else self.shape(extras)

        return ModelShape(
            self._cls,
            make_fields,
            make_others if extra_allowed else None,
            self._validator(fields),
            cast("SchemaValidator", self._cls.__pydantic_validator__),
            [
                self._validator({**layer, "schema": core_schema.any_schema()})
                for layer in reversed(own)
                if layer["type"] == "function-after"
            ],
            reads_through_validators=bool(self._schema.get("custom_init"))
            or any(layer["type"] != "function-after" for layer in own)
            or any(_asks_for_others(field["schema"]) for field in fields["fields"].values()),
        )

    def shape(self, schema: _Schema) -> Shape:
        """Return the shape for a schema."""
        kind = schema["type"]
        if "serialization" in schema and not _is_pydantics_own(schema):
            return self._coded(schema)
        if kind in _TRANSPARENT:
            return self.shape(schema["schema"])
        if kind in _SCALARS:
            return self._scalar(schema)
        if kind in _WRAPPERS:
            return self._wrapped(schema)
        return self._makers.get(kind, self._coded)(schema)

    def _scalar(self, schema: _Schema) -> Shape:
        kind = schema["type"]
        limits = [name for name in self._config if name.startswith("str_")] if kind == "str" else []
        if limits or not _HARMLESS.issuperset(schema):
            return self._coded(schema)
        return Scalar(_SCALARS[kind], self._validator(schema))

    def _wrapped(self, schema: _Schema) -> Shape:
        model, layers = _model_schema(schema, {**self._refs})
        if model is not None and len(layers) == len(_model_schema(model["cls"].__pydantic_core_schema__, {})[1]):
            return shape_of(model["cls"])
        inner = self.shape(_peel(schema)[0])
        if isinstance(inner, Scalar | Coded):
            return self._coded(schema)
        return Checked(inner, self._validator(schema))

    def _model(self, schema: _Schema) -> Shape:
        return shape_of(schema["cls"])

    def _any(self, schema: _Schema) -> Shape:
        return ANYTHING

    def _nullable(self, schema: _Schema) -> Shape:
        return Nullable(self.shape(schema["schema"]), self._validator(schema))

    def _list(self, schema: _Schema) -> Shape:
        return ListShape(self._items(schema), self._validator(schema), self._bounds(schema, "items_schema"))

    def _set(self, schema: _Schema) -> Shape:
        return SetShape(self._immutable_items(schema), self._validator(schema), self._bounds(schema, "items_schema"))

    def _frozenset(self, schema: _Schema) -> Shape:
        return FrozenSetShape(self._immutable_items(schema), self._validator(schema))

    def _tuple(self, schema: _Schema) -> Shape:
        items = [self.shape(item) for item in schema["items_schema"]]
        return TupleShape(items, schema.get("variadic_item_index"), self._validator(schema))

    def _dict(self, schema: _Schema) -> Shape:
        values = schema.get("values_schema")
        return DictShape(
            self._keys(schema.get("keys_schema")),
            ANYTHING if values is None else self.shape(values),
            self._validator(schema),
            self._bounds(schema, "keys_schema", "values_schema"),
        )

    def _typed_dict(self, schema: _Schema) -> Shape:
        named = {name: self.shape(field["schema"]) for name, field in schema["fields"].items()}
        extra = schema.get("extra_behavior") or (schema.get("config") or {}).get("extra_fields_behavior")
        extras = schema.get("extras_schema")
        others = None
        if extra == "allow":
            others = ANYTHING if extras is None else self.shape(extras)
        validator = self._validator(schema)
        # Required keys are a property of the dict as a whole, so it is validated as a whole at commit.
        return DictShape(TextKeys(), others, validator, validator, named)

    def _union(self, schema: _Schema) -> Shape:
        choices = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
        return self._one_of(schema, choices, discriminated=False)

    def _tagged_union(self, schema: _Schema) -> Shape:
        return self._one_of(schema, list(schema["choices"].values()), discriminated=True)

    def _one_of(self, schema: _Schema, choices: Sequence[_Schema], *, discriminated: bool) -> Shape:
        arms = [self.shape(choice) for choice in _merge_containers(choices)]
        return UnionShape(arms, self._validator(schema), discriminated=discriminated)

    def _json_or_python(self, schema: _Schema) -> Shape:
        return self._as_validated_by(schema, self.shape(schema["json_schema"]))

    def _lax_or_strict(self, schema: _Schema) -> Shape:
        return self._as_validated_by(schema, self.shape(schema["lax_schema"]))

    def _chain(self, schema: _Schema) -> Shape:
        return self._as_validated_by(schema, self.shape(schema["steps"][-1]))

    def _as_validated_by(self, schema: _Schema, inner: Shape) -> Shape:
        if isinstance(inner, Scalar | Coded):
            return self._coded(schema)
        return Checked(inner, self._validator(schema))

    def _reference(self, schema: _Schema) -> Shape:
        ref = schema["schema_ref"]
        if ref not in self._known:
            self._known[ref] = deferred = Deferred()
            deferred.shape = self.shape(self._refs[ref])
        return self._known[ref]

    def _bytes(self, schema: _Schema) -> Shape:
        ways = {self._config.get("ser_json_bytes"), self._config.get("val_json_bytes")}
        if len(ways) == 1 and ways < _TEXT_ENCODINGS:
            return self._coded(schema)
        return Undeclared(
            "bytes have no JSON form of their own; declare the field as pydantic.Base64Bytes, or set ser_json_bytes "
            "and val_json_bytes of the model's config to 'base64'"
        )

    def _coded(self, schema: _Schema) -> Coded:
        kind = schema["type"]
        trusted = kind in _TRUSTED and "serialization" not in schema
        if kind == "enum":
            trusted = "missing" not in schema and all(type(member.value) in (str, int) for member in schema["members"])
        # A validator that reads other fields cannot run alone; its model is validated as a whole at commit.
        alone = not _asks_for_others(schema)
        return Coded(self._validator(schema), self._serializer(schema), trusted=trusted, alone=alone)

    def _items(self, schema: _Schema) -> Shape:
        items = schema.get("items_schema")
        return ANYTHING if items is None else self.shape(items)

    def _immutable_items(self, schema: _Schema) -> Shape:
        items = schema.get("items_schema")
        if items is not None and _model_schema(items, {**self._refs})[0] is not None:
            return self._coded(items)
        return self._items(schema)

    def _keys(self, schema: _Schema | None) -> KeyShape:
        if schema is None or schema["type"] == "any":
            return TextKeys()
        if schema["type"] == "str" and isinstance(self._scalar(schema), Scalar):
            return TextKeys(self._validator(schema))
        one = core_schema.dict_schema(schema, core_schema.any_schema())
        exact = _EXACT_KEYS.get(schema["type"]) if _HARMLESS.issuperset(schema) else None
        return CodedKeys(self._validator(one), self._serializer(one), exact)

    def _bounds(self, schema: _Schema, *parts: str) -> SchemaValidator | None:
        """Return a validator of a schema's constraints on a container as a whole; ``None`` if there are none."""
        if not {"min_length", "max_length"} & set(schema):
            return None
        return self._validator({key: value for key, value in schema.items() if key not in parts})

    def _validator(self, schema: _Schema) -> SchemaValidator:
        return SchemaValidator(self._whole(schema), cast("Any", self._config))

    def _serializer(self, schema: _Schema) -> SchemaSerializer:
        return SchemaSerializer(self._whole(schema), cast("Any", self._config))

    def _whole(self, schema: _Schema) -> CoreSchema:
        if not self._refs:
            return schema
        return core_schema.definitions_schema(schema, list(self._refs.values()))


def _peel(schema: _Schema) -> tuple[_Schema, list[_Schema]]:
    """Return a schema without its wrapping functions, and those functions, outermost first."""
    layers: list[_Schema] = []
    while schema["type"] in _WRAPPERS:
        layers.append(schema)
        schema = schema["schema"]
    return schema, layers


def _model_schema(schema: Any, definitions: dict[str, CoreSchema]) -> tuple[_Schema | None, list[_Schema]]:
    """Return the ``model`` schema inside of functions and definitions, and those functions.

    Args:
        schema: a core schema.
        definitions: the targets of ``definition-ref``; definitions found on the way are added.
    """
    layers: list[_Schema] = []
    here: _Schema = schema
    while here["type"] != "model":
        if here["type"] == "definitions":
            definitions.update({item["ref"]: item for item in here["definitions"]})
            here = here["schema"]
        elif here["type"] == "definition-ref":
            here = definitions[here["schema_ref"]]
        elif here["type"] in _WRAPPERS:
            layers.append(here)
            here = here["schema"]
        else:
            return None, layers
    return here, layers


def _merge_containers(choices: Sequence[_Schema]) -> list[_Schema]:
    """Merge ``list[A] | list[B]`` into ``list[A | B]``, and likewise sets and dicts.

    An empty list is of either type until an item is put into it. Whether all items are A or all are B is checked at
    commit, by the round trip of the whole union.
    """
    merged: list[_Schema] = []
    for kind, parts in (
        ("list", ["items_schema"]),
        ("set", ["items_schema"]),
        ("dict", ["keys_schema", "values_schema"]),
    ):
        same = [choice for choice in choices if choice["type"] == kind and "serialization" not in choice]
        if len(same) > 1:
            choices = [choice for choice in choices if choice not in same]
            merged.append({"type": kind, **{part: _either([one.get(part, _ANY) for one in same]) for part in parts}})
    return [*merged, *choices]


def _asks_for_others(schema: _Schema) -> bool:
    """Return whether a user's validator of a field may read the other fields."""
    here = schema
    while here["type"] in _WRAPPERS or here["type"] in _TRANSPARENT or here["type"] == "nullable":
        function = here.get("function") or {}
        if function.get("type") == "with-info" and not _is_pydantics(function["function"]):
            return True
        here = here["schema"]
    return False


def _either(schemas: Sequence[_Schema]) -> _Schema:
    if all(schema == schemas[0] for schema in schemas):
        return schemas[0]
    return core_schema.union_schema(list(schemas))


def _is_pydantics_own(schema: _Schema) -> bool:
    """Return whether a serializer is pydantic's own for abstract containers: its output is the same."""
    function = schema["serialization"].get("function")
    return (
        schema["type"] in ("json-or-python", "lax-or-strict")
        and schema["serialization"].get("type") == "function-wrap"
        and _is_pydantics(function)
    )


def _is_pydantics(function: object) -> bool:
    return str(getattr(function, "__module__", "")).startswith("pydantic.")
