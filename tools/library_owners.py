"""A contract of import-linter: a library is imported in the modules that own it, and in no other.

``owners`` has a line for each library: ``"sqlite3: chronicle.journal.sqlite"``, with the owners after the colon; what
is below one may import the library, too. A package of this project may be a library. One without owners is imported
by nobody: its user loads it by name. An owner that does not import its library is a fault as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from importlinter import Contract, ContractCheck, fields, output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grimp import ImportGraph

__all__ = ["LibraryOwners"]


class LibraryOwners(Contract):
    """Holds the owners of libraries."""

    owners = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare the imports of each library with its owners."""
        del verbose
        faults = [
            fault for line in cast("list[str]", self.owners) for fault in _faults(graph, *line.replace(",", "").split())
        ]
        return ContractCheck(kept=not faults, metadata={"faults": faults})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the faults."""
        for fault in check.metadata["faults"]:
            output.print_error(fault)


def _faults(graph: ImportGraph, library: str, *owners: str) -> Iterator[str]:
    library = library.removesuffix(":")
    parts = {library} & graph.modules
    if parts and not graph.is_module_squashed(library):
        parts |= graph.find_descendants(library)
    importers = {importer for part in parts for importer in graph.find_modules_that_directly_import(part)} - parts
    for importer in sorted(importers):
        if not any(_is_below(importer, owner) for owner in owners):
            yield f"{importer} imports {library}; its owners: {', '.join(owners) or 'nobody'}"
    for owner in owners:
        if not any(_is_below(importer, owner) for importer in importers):
            yield f"{owner} does not import {library}: take it from the owners"


def _is_below(module: str, room: str) -> bool:
    return f"{module}.".startswith(f"{room}.")
