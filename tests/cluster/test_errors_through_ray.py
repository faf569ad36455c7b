"""Errors keep their type, text, fields, notes and cause through real Ray calls, as they do through pickle."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import ray

from coordinator.ray.cluster import cause_of, disconnect, start
from podium.errors import PodiumError
from tests.error_classes import error_classes, name_of, sample, seen
from tests.leftovers import new_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWER_S = 120


class UsersOwn(Exception):
    """Like one of a user's code: it pickles, and does not load."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first}\n{second}")


class Closed(Exception):
    """Does not pickle."""

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a socket")


@ray.remote
class Host:
    """Raises what it is asked for."""

    async def fail(self, name: str) -> None:
        raise sample(next(cls for cls in error_classes() if name_of(cls) == name))

    async def fail_as_a_user(self, kind: str) -> None:
        raise UsersOwn("this", "and that") if kind == "UsersOwn" else Closed("shut")


@ray.remote
class Coordinator:
    """Passes on what a host raises, as the coordinator does while it wakes an agent."""

    def __init__(self, host: Any) -> None:
        self._host = host

    async def fail(self, method: str, argument: str) -> None:
        waking = asyncio.get_running_loop().create_future()
        try:
            await getattr(self._host, method).remote(argument)
        except Exception as error:  # noqa: BLE001
            waking.set_exception(cause_of(error))
        waking.result()


@pytest.fixture(scope="module")
def coordinator() -> Iterator[Any]:
    with new_directory("podium-ray-") as run_dir, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))  # for the workers
        start("podium-test", run_dir, run_dir / "log")
        try:
            yield Coordinator.remote(Host.remote())  # type: ignore[attr-defined]
        finally:
            disconnect()


def raised(coordinator: Any, method: str, argument: str) -> Exception:
    """What a client of the coordinator gets."""

    async def ask() -> Exception:
        try:
            await asyncio.wait_for(coordinator.fail.remote(method, argument), ANSWER_S)
        except Exception as error:  # noqa: BLE001
            return cause_of(error)
        raise AssertionError("it raised nothing")

    return asyncio.run(ask())


@pytest.mark.parametrize("cls", error_classes(), ids=name_of)
def test_every_error_is_the_same_through_two_ray_calls(coordinator: Any, cls: type[BaseException]) -> None:
    assert seen(raised(coordinator, "fail", name_of(cls))) == seen(sample(cls))


@pytest.mark.parametrize(("kind", "text"), [("UsersOwn", "UsersOwn: this\nand that"), ("Closed", "Closed: shut")])
def test_an_error_that_cannot_be_sent_is_named_all_the_same(coordinator: Any, kind: str, text: str) -> None:
    error = raised(coordinator, "fail_as_a_user", kind)
    assert type(error) is PodiumError
    assert str(error).endswith(text)
    assert "Traceback" not in str(error)
