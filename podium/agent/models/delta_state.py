"""`DeltaState`, the base class of an agent's state.

::

    class State(DeltaState):
        _version = 1
        _entity_type = "counter"

        count: int = 0
        history: list[str] = []

Fields are declared as in any pydantic model. Changes at any depth are tracked as they are made and committed with the
turn (`podium.state`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from podium.state.errors import StateError, UnsupportedType
from podium.state.migrations import migration, migrations_of
from podium.state.tracked.models import TrackedModel, track_root
from podium.state.tracked.shape_compiler import TRACKS_INSTANCES, shape_of

if TYPE_CHECKING:
    from typing import Self

    from pydantic._internal._model_construction import ModelMetaclass as _ModelMeta
else:
    _ModelMeta = type(BaseModel)  # pydantic gives its metaclass no public name

__all__ = ["DeltaState", "migration"]

_HEADER: Final = ("_version", "_entity_type")


class _StateMeta(_ModelMeta):
    """Keeps ``_version`` and ``_entity_type`` plain class attributes; pydantic would make them private attributes."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> type:
        header = {key: namespace.pop(key) for key in _HEADER if key in namespace}
        annotations = namespace.get("__annotations__", {})
        for key in _HEADER:
            annotations.pop(key, None)
        cls = super().__new__(mcs, name, bases, namespace, **kwargs)
        for key, value in header.items():
            type.__setattr__(cls, key, value)
        if bases and hasattr(cls, "_version"):
            _check_header(cls)
        return cls


def _check_header(cls: Any) -> None:
    version, entity_type = cls._version, cls._entity_type
    if type(version) is not int or version < 1:
        raise UnsupportedType(f"{cls.__qualname__}._version is {version!r}; it must be a whole number from 1")
    if not isinstance(entity_type, str):
        raise UnsupportedType(f"{cls.__qualname__}._entity_type is {entity_type!r}; it must be text")
    for from_version in migrations_of(cls):
        if from_version >= version:
            raise UnsupportedType(
                f"{cls.__qualname__} declares a migration from version {from_version}, but is at _version = {version}"
            )


def _tracked(state: DeltaState) -> DeltaState:
    state._become_root()  # noqa: SLF001  its own module
    return state


class DeltaState(TrackedModel, BaseModel, metaclass=_StateMeta):
    """The durable, typed state of an agent. Subclass it and declare fields.

    Values have value semantics: an assigned value is validated against its declared type and copied; read it back from
    the state to change it further. A value that JSON cannot represent is refused at the assignment, with its path.
    Validators of the whole model run when the turn commits. Two instances never share a default.

    The order of a dict's keys is not part of the state: insertion order until the agent sleeps, sorted when it wakes.
    Where order matters, use a list, or sort when reading.

    Attributes:
        _version: of the declared fields; increment it when a stored state would no longer fit, and declare a
            `podium.state.migration` from the version before.
        _entity_type: the agent's entity type; empty to derive it from the agent class.
    """

    __slots__ = ("_podium",)

    # A default that does not fit its type would make the state unloadable, so it is refused at construction.
    model_config = ConfigDict(validate_default=True)

    if TYPE_CHECKING:
        _version: int = 1
        _entity_type: str = ""
        __podium_shape__: ClassVar[Any]
    else:
        _version = 1
        _entity_type = ""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            _tracked, handler(source), metadata={TRACKS_INSTANCES: True}
        )

    @classmethod
    def model_construct(  # type: ignore[override]  # pydantic's plugin declares it for each model
        cls, _fields_set: set[str] | None = None, **values: Any
    ) -> Self:
        """Build a state without running validators; values that do not fit their types are still refused."""
        state = super().model_construct(_fields_set, **values)
        state._become_root()  # noqa: SLF001
        return state

    if not TYPE_CHECKING:  # see TrackedModel

        def __setattr__(self, name: str, value: object) -> None:
            if name in _HEADER:
                raise StateError(f"{name} belongs to the class; set it there, not on a state")
            super().__setattr__(name, value)

    def _become_root(self) -> None:
        track_root(self, shape_of(type(self)))
