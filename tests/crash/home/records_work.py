"""Writes keys, quotas, calls and documents of a home in PostgreSQL, until told to end, or killed. Run by its test.

    python -m tests.crash.home.records_work CONNINFO SCHEMA DIRECTORY NAME NUMBER

Appends a line to the file ``NAME`` of the directory for what was answered, and before a key is revoked. It ends when
there is a file ``enough``. While the server is away it tries again. The quotas of all tenants are one number, which no
other process has.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from chronicle.errors import NotFound, Unavailable
from coordinator.access.caller import Scope
from coordinator.access.quotas import Quota
from coordinator.homes.postgres.records import PostgresHomeRecords
from tests.unit.coordinator.models.recorded import record

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.access.records import KeyRecords

TENANTS = ("acme", "bolt", "crane")
HOME_ID = "abcdefgh2345"
_TURNS = 1_000_000
_PAUSE_S = 0.02

_T = TypeVar("_T")


def again(write: Callable[[], _T]) -> _T:
    """Write, and try again while the server is away."""
    while True:
        try:
            return write()
        except Unavailable:
            time.sleep(_PAUSE_S)


def check_quotas(keys: KeyRecords) -> None:
    """Check that the quotas are those of one writer at one moment."""
    found = keys.quotas()
    numbers = {quota.agents for quota in found.values()}
    assert (len(found), len(numbers)) in ((0, 0), (len(TENANTS), 1)), f"a mix of two writers: {found}"


class Worker:
    """One process's work.

    Args:
        records: those of the home.
        directory: of the log.
        name: of this process.
        number: of this process.
    """

    def __init__(self, records: PostgresHomeRecords, directory: Path, name: str, number: int) -> None:
        self._name = name
        self._number = number
        self._log = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._keys, self._calls, self._documents = again(records.keys), again(records.calls), again(records.documents)

    def turn(self, turn: int) -> None:
        """Write each of them once."""
        name = self._name
        key, text = again(lambda: self._keys.create(f"{name} {turn}", name, [Scope.READ], turn))
        self._say("key", text)
        if turn % 3 == 0:
            self._say("revoking", text)
            with suppress(NotFound):  # an earlier try did, whose answer was lost
                again(lambda: self._keys.revoke(key.key_id))
            self._say("revoked", text)
        quotas = dict.fromkeys(TENANTS, Quota(agents=self._number * _TURNS + turn))
        again(lambda: self._keys.set_quotas(quotas))
        again(lambda: check_quotas(self._keys))
        call = record(f"call_{name}_{turn}", started_ms=turn)
        again(lambda: self._calls.begin(call))
        self._say("call", call.call_id)
        data = f"{name} {turn}".encode()
        again(lambda: self._documents.write(name, data))
        again(lambda: self._documents.write("common", data))
        self._say("document", str(turn))

    def _say(self, *words: str) -> None:
        os.write(self._log, f"{' '.join(words)}\n".encode())


def main(conninfo: str, schema: str, directory: str, name: str, number: str) -> None:
    records = PostgresHomeRecords(conninfo, schema, lambda: HOME_ID, Path(directory), create=True)
    worker = Worker(records, Path(directory), name, int(number))
    for turn in count(1):
        if (Path(directory) / "enough").exists():
            return
        worker.turn(turn)


if __name__ == "__main__":
    main(*sys.argv[1:])
