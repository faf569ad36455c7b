"""The quarantine: agents of shared classes that get processes of their own, because their code blocked a shared host.

It is durable: a document of the home, which the coordinator replaces. An entry holds while the code is the one that
blocked, with the same content of its files; an edit ends it. An entry that is lost costs one more blocked host.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from chronicle.errors import ChronicleError
from coordinator.documents import QUARANTINE
from coordinator.fleet.model import Code, Loaded
from podium.address import Address
from podium.errors import InvalidAddress

if TYPE_CHECKING:
    from coordinator.documents import Documents
    from coordinator.fleet.code.code_stamp import CodeStamps

__all__ = ["Quarantine"]

_FORMAT: Final = 1

_log = structlog.stdlib.get_logger("coordinator.fleet.deaths.quarantine")


@dataclass(frozen=True, slots=True)
class _Entry:
    loaded: Loaded
    """The code that blocked."""
    why: str


class Quarantine:
    """The quarantined agents.

    Args:
        documents: those of the home; ``None`` to keep the agents in memory only.
    """

    def __init__(self, documents: Documents | None = None) -> None:
        self._documents = documents
        self._entries = _read(documents) if documents is not None else {}

    def add(self, address: Address, loaded: Loaded, why: str) -> None:
        """Quarantine an agent while its code is the given one; durable on return unless it cannot be written.

        Args:
            why: what it did, for `reason`.
        """
        self._entries[address] = _Entry(loaded, why)
        self._write()

    def holds(self, address: Address, code: Code, stamps: CodeStamps) -> bool:
        """Whether an agent with a code is quarantined; an entry for another code, or another content, is dropped."""
        entry = self._entries.get(address)
        if entry is None:
            return False
        if entry.loaded.is_of(code, stamps):
            return True
        del self._entries[address]
        self._write()
        return False

    def reason(self, address: Address) -> str | None:
        """Return why an agent is quarantined; ``None`` if it is not."""
        entry = self._entries.get(address)
        return entry.why if entry is not None else None

    def _write(self) -> None:
        if self._documents is None:
            return
        agents = {
            str(address): {
                "file": entry.loaded.code.file,
                "class": entry.loaded.code.class_name,
                "bundle": entry.loaded.code.bundle,
                "sources": list(entry.loaded.sources),
                "stamp": entry.loaded.stamp,
                "why": entry.why,
            }
            for address, entry in self._entries.items()
        }
        try:
            self._documents.write(QUARANTINE, json.dumps({"format": _FORMAT, "agents": agents}).encode())
        except ChronicleError as error:  # such as a full disk: it holds until this coordinator ends
            _log.warning("quarantine_not_written", error=str(error))


def _read(documents: Documents) -> dict[Address, _Entry]:
    try:
        data = documents.read(QUARANTINE)
        if data is None:
            return {}
        kept = json.loads(data)
        if kept["format"] != _FORMAT:
            raise ValueError(f"format {kept['format']}")
        return dict(_entry(text, fields) for text, fields in kept["agents"].items())
    except (ChronicleError, ValueError, KeyError, TypeError, InvalidAddress) as error:
        _log.warning("quarantine_not_read", path=documents.place(QUARANTINE), error=str(error))
        return {}


def _entry(text: str, fields: dict[str, Any]) -> tuple[Address, _Entry]:
    address = Address.parse(text)
    code = Code(str(fields["file"]), str(fields["class"]), address.agent_type, str(fields.get("bundle", "")))
    loaded = Loaded(code, tuple(fields["sources"]), str(fields["stamp"]), "shared")
    return address, _Entry(loaded, str(fields["why"]))
