"""The import contract of libraries and their owners."""

from __future__ import annotations

import pytest
from grimp import ImportGraph

from tools.library_owners import LibraryOwners


def faults_of(*owners: str) -> list[str]:
    graph = ImportGraph()
    for module in ("home", "home.store", "home.store.sql", "home.other", "sqlite3", "ray"):
        graph.add_module(module)
    for importer, library in (("home.store.sql", "sqlite3"), ("home.other", "ray")):
        graph.add_import(importer=importer, imported=library)
    contract = LibraryOwners("", {}, {"name": "owners", "owners": owners})
    check = contract.check(graph, verbose=False)
    assert check.kept is not bool(check.metadata["faults"])
    return list(check.metadata["faults"])


@pytest.mark.parametrize(
    ("owner", "faults"),
    [
        ("sqlite3: home.store", []),
        ("sqlite3: home.store.sql", []),
        ("ray: home.store, home.other", ["home.store does not import ray: take it from the owners"]),
        ("ray:", ["home.other imports ray; its owners: nobody"]),
        ("openai:", []),
        ("openai: home", ["home does not import openai: take it from the owners"]),
        (
            "sqlite3: home.st",
            [
                "home.store.sql imports sqlite3; its owners: home.st",
                "home.st does not import sqlite3: take it from the owners",
            ],
        ),
    ],
)
def test_who_may_import_a_library(owner: str, faults: list[str]) -> None:
    assert faults_of(owner) == faults
