"""Methods of a store made of functions of a connection: each call is one transaction of the store's database."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from chronicle.journal.sql.port import Connection

__all__ = ["reading", "writing"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def reading(work: Callable[Concatenate[Connection, _P], _R]) -> Callable[Concatenate[Any, _P], _R]:
    """Return a method that does ``work`` on a connection for reads."""

    @wraps(work)
    def method(store: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with store._db.reading() as db:  # noqa: SLF001 - the store's own
            return work(db, *args, **kwargs)

    return method


def writing(work: Callable[Concatenate[Connection, _P], _R]) -> Callable[Concatenate[Any, _P], _R]:
    """Return a method that does ``work`` in a write transaction, durable on return."""

    @wraps(work)
    def method(store: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with store._db.writing() as db:  # noqa: SLF001 - the store's own
            return work(db, *args, **kwargs)

    return method
