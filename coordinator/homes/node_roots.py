"""The trees that the layers of a home's directories refer to, as each directory has told the others: roots for gc.

A collection reads the layers of its own directory. Those of other machines it cannot read: what their store processes
have published last counts, also when a machine cannot be reached, for `FORGOTTEN_S`. A store process that is of another
user than hosts reads no layers: it publishes what the managers of its machine's nodes tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from chronicle.errors import Corrupt, UnsupportedFormat
from chronicle.workspace.gc_roots import layer_refs

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from chronicle.workspace.port import TreeRef

__all__ = ["FORGOTTEN_S", "PUBLISH_EVERY_S", "NodeRoots", "PublishesRoots", "publish_roots", "roots_of"]

PUBLISH_EVERY_S: Final = 1200.0
"""A third of the grace period of gc: within it a tree is committed, or published."""
FORGOTTEN_S: Final = 30 * 86_400.0
"""A machine that has published nothing for so long is taken to be gone for good."""


class PublishesRoots(Protocol):
    """Where the roots of this directory are published."""

    def publish(self, refs: Collection[TreeRef], damage: str = "") -> None:
        """Replace those of this directory, durably.

        Args:
            damage: why not all of them are known: then nothing is collected until it is mended.

        Raises:
            Unavailable: the database cannot be reached.
        """
        ...


class NodeRoots(PublishesRoots, Protocol):
    """The published roots of a home."""

    def of_others(self) -> list[TreeRef]:
        """Return those of all other directories.

        Raises:
            Corrupt: one of them has damage.
            Unavailable: the database cannot be reached.
        """
        ...


def roots_of(directory: Path) -> list[TreeRef]:
    """Return the trees that the layers in a home's directory refer to.

    Raises:
        UnsupportedFormat, Corrupt: one of them cannot be read.
    """
    return [ref for layers in sorted((directory / "nodes").glob("*/layers")) for ref in layer_refs(layers)]


def publish_roots(roots: PublishesRoots, directory: Path) -> None:
    """Publish the trees that the layers in a home's directory refer to, or that one of them cannot be read.

    Raises:
        Corrupt, UnsupportedFormat: that was published.
        Unavailable: the database cannot be reached.
    """
    try:
        refs = roots_of(directory)
    except (Corrupt, UnsupportedFormat) as error:
        roots.publish((), damage=str(error))
        raise
    roots.publish(refs)
