"""Golden files for the migrations of a state class: one stored document per version, checked step by step.

::

    def test_migrations():
        check_migrations(MyAgent.State, Path("tests/golden/my_agent"))

The folder holds ``v1.json``, ``v2.json``, ... up to the class's ``_version``: real documents, the ``state`` that
`podium state --json` prints. Add the file of a version when you increment ``_version``, and never change it afterwards:
it represents the states that exist in the field.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.canonical import JsonObject, decode, encode
from podium.state import diff, from_json, to_json
from podium.state.migrations import migrate, migrations_of

if TYPE_CHECKING:
    from podium.agent.models.delta_state import DeltaState

__all__ = ["check_migrations"]


def check_migrations(cls: type[DeltaState], folder: Path) -> None:
    """Check each migration of a state class alone, and that a state of any version loads.

    Args:
        cls: the state class.
        folder: has the documents ``v<version>.json`` for the versions from the oldest kept to the class's.

    Raises:
        AssertionError: a file is missing, a step does not give the next version's document, or a document does not load
            to what the newest one loads to; the message has the difference as a patch.
        podium.state.StateError: a step is missing or failed, or a document does not fit the class.
    """
    current = cls._version
    found = sorted(int(path.stem[1:]) for path in folder.glob("v*.json"))
    assert found, f"{folder} has no v<version>.json"
    assert found == list(range(found[0], current + 1)), (
        f"{folder} has versions {found}, not all from {found[0]} to {current}"
    )
    documents = {version: _read(folder / f"v{version}.json") for version in found}
    for version in found[:-1]:
        step = {at: move for at, move in migrations_of(cls).items() if at == version}
        moved = migrate(cls.__qualname__, step, documents[version], version, version + 1)
        change = diff(moved, documents[version + 1])
        assert not change, f"the migration from {version} does not give v{version + 1}.json, but needs {change}"
    newest = to_json(from_json(cls, documents[current], current))
    for version in found:
        loaded = to_json(from_json(cls, documents[version], version))
        assert encode(loaded) == encode(newest), f"v{version}.json loads to something else: {diff(newest, loaded)}"


def _read(path: Path) -> JsonObject:
    document = decode(path.read_bytes())
    assert isinstance(document, dict), f"{path} is no JSON object"
    return document
