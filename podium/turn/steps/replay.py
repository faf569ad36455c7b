"""The order in which an attempt gets the steps that earlier attempts ended.

A recorded step is returned when the attempt is where the first one was at the step's end: the steps that ended before
it were returned, and those that were running then were asked for. A step without a record runs once all recorded ones
were returned, for a later restoration would undo what it does. An unchanged program always gets there; one that does
not gets `ProgramChanged`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

from podium.errors import ProgramChanged
from podium.turn.steps.failures import raised_again

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from podium.history.step_record import FailedStep, StepRecord

__all__ = ["Replay"]

_PATIENCE_S: Final = 30.0
"""How long a step waits without any progress for others that the record has before it. What a program does between
steps that overlap is short, and a wrong `ProgramChanged` needs a person."""


class Replay:
    """The recorded steps of a message, and how far an attempt is with them.

    Create it in the task of the hook.

    Args:
        records: in order.
    """

    def __init__(self, records: Sequence[StepRecord]) -> None:
        self._records = records
        self._places = {record.key: place for place, record in enumerate(records)}
        self._failed = {
            failed["key"]: (place, failed) for place, record in enumerate(records) for failed in record.failed
        }
        self._asked: set[str] = set()
        self._moved = asyncio.Event()
        self._hook = asyncio.current_task()
        self._others = asyncio.all_tasks() if records else set()
        self.place = 0
        """How many were returned."""
        self._fits = len(records)

    @property
    def over(self) -> bool:
        """Whether all recorded steps were returned."""
        return self.place == len(self._records)

    @property
    def fits(self) -> int:
        """How many steps fit the program, once one does not."""
        return min(self.place, self._fits)

    @property
    def next(self) -> StepRecord | None:
        """The recorded step to return next."""
        return None if self.over else self._records[self.place]

    def asked(self, key: str) -> None:
        """Note that a step was asked for."""
        if not self.over:
            self._asked.add(key)
            self.notify()

    def advance(self) -> None:
        """Note that the next recorded step was returned."""
        self.place += 1
        self.notify()

    def notify(self) -> None:
        """Wake the steps that wait."""
        self._moved.set()
        self._moved = asyncio.Event()

    def record(self, key: str, args_hash: str) -> StepRecord | None:
        """Return the record of a step; ``None`` without one.

        Raises:
            ProgramChanged: it was recorded with other arguments.
        """
        place = self._places.get(key)
        if place is None:
            return None
        found = self._records[place]
        _check_arguments(key, args_hash, found.args_hash)
        return found

    def failure(self, key: str, args_hash: str) -> FailedStep | None:
        """Return the recorded failure of a step that the program handled; ``None`` without one.

        Raises:
            ProgramChanged: it was recorded with other arguments.
        """
        found = self._failed.get(key)
        if found is None:
            return None
        if found[1]["args_hash"] != args_hash:
            self._fits = found[0]
        _check_arguments(key, args_hash, found[1]["args_hash"])
        return found[1]

    async def until_returned(self, key: str) -> None:
        """Wait until a recorded step may be returned."""
        place = self._places[key]
        running = set(self._records[place].running)
        await self._until(lambda: self.place == place and running <= self._asked, key)

    async def fail_again(self, key: str, failure: FailedStep) -> NoReturn:
        """Wait until a recorded failure may be raised, and raise it; wait for ever for a recorded cancellation.

        Raises:
            ProgramChanged: the program had left the step, which streams, and now reads on in it.
        """
        place = self._failed[key][0]
        await self._until(lambda: self.place >= place, key)
        if failure.get("left"):
            self._fits = place
            raise _changed(f"the hook reads on in step {key!r}, which an earlier attempt had left")
        while failure["cancelled"]:
            await asyncio.Event().wait()  # until the program cancels it once more
        raise raised_again(failure)

    async def until_over(self, key: str) -> None:
        """Wait until all recorded steps were returned."""
        await self._until(lambda: self.over, key)

    def check_over(self) -> None:
        """Check at the end of the hook that all recorded steps were asked for.

        Raises:
            ProgramChanged: one was not.
        """
        if not self.over:
            raise _changed(f"the hook returned without step {self._records[self.place].key!r}")

    async def _until(self, ready: Callable[[], bool], key: str) -> None:
        while not ready():
            if self._is_alone():
                raise self._out_of_order(key)
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await self._moved.wait()
            except TimeoutError:
                raise self._out_of_order(key) from None

    def _is_alone(self) -> bool:
        """Return whether the hook waits in its own task and has begun no other: nobody else will ask for a step."""
        if asyncio.current_task() is not self._hook:
            return False
        return asyncio.all_tasks() - self._others <= {self._hook}

    def _out_of_order(self, key: str) -> ProgramChanged:
        return _changed(f"the hook asks for step {key!r} where the record has step {self._records[self.place].key!r}")


def _check_arguments(key: str, asked: str, recorded: str) -> None:
    if asked != recorded:
        raise _changed(f"the hook asks for step {key!r} with other arguments than those of its record")


def _changed(what: str) -> ProgramChanged:
    return ProgramChanged(f"{what}: an earlier attempt ran another program")
