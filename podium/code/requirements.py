"""What a bundle needs of a node: the Python and the Podium that packed it, and installed libraries."""

from __future__ import annotations

import socket
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from chronicle.errors import InvalidInput
from podium.code.manifest import podium_version, python_version, short_id
from podium.errors import BundleRefused

if TYPE_CHECKING:
    from podium.code.manifest import Manifest

__all__ = ["check_fits", "parse_requirement"]


def check_fits(manifest: Manifest) -> None:
    """Check that a bundle can run in this process.

    Raises:
        BundleRefused: another version of Python or Podium packed it, or a requirement is not installed.
    """
    bundle, node = f"the code bundle {short_id(manifest.bundle)}", f"the node {socket.gethostname()}"
    for what, packed, here in (
        ("podium", manifest.podium, podium_version()),
        ("Python", manifest.python, python_version()),
    ):
        if packed != here:
            raise BundleRefused(
                f"{bundle} is for {what} {packed}, and {node} has {what} {here}: deploy again "
                f"from {what} {here}, or install {what} {packed} on the node"
            )
    for text in manifest.requirements:
        needed = parse_requirement(text)
        if needed.marker is not None and not needed.marker.evaluate():
            continue
        try:
            installed = version(needed.name)
        except PackageNotFoundError:
            installed = ""
        if not installed or not needed.specifier.contains(installed, prereleases=True):
            there = f"{needed.name} {installed}" if installed else f"no {needed.name}"
            raise BundleRefused(
                f"{bundle} requires {text}, and {node} has {there}: install it on the node, then podium reload"
            )


def parse_requirement(text: str) -> Requirement:
    """Return a requirement of a bundle.

    Raises:
        InvalidInput: it is none.
    """
    try:
        found = Requirement(text)
    except InvalidRequirement as error:
        raise InvalidInput(f"{text!r} is no requirement; write a name and its versions, such as httpx>=0.28") from error
    if found.url is not None:
        raise InvalidInput(f"{text!r} names a URL; write a name and its versions, such as httpx>=0.28")
    return found
