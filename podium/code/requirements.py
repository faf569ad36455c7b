"""What a bundle needs of a node: the Python, Podium and Ray that packed it, and installed libraries."""

from __future__ import annotations

import socket
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from chronicle.errors import InvalidInput
from podium.code.manifest import podium_version, python_version, ray_version, short_id
from podium.errors import BundleRefused

if TYPE_CHECKING:
    from podium.code.manifest import Manifest

__all__ = ["check_fits", "lacking", "parse_requirement"]


def lacking(manifest: Manifest) -> list[tuple[str, str]]:
    """Return what a bundle needs and this process lacks, such as ``("httpx>=0.28", "httpx 0.20")``.

    The second of a pair is what is there instead. Versions of podium, Ray and Python come first.
    """
    found = [
        (f"{what} {packed}", f"{what} {here}")
        for what, packed, here in (
            ("podium", manifest.podium, podium_version()),
            ("Ray", manifest.ray, ray_version()),
            ("Python", manifest.python, python_version()),
        )
        if packed not in (None, here)
    ]
    for text in manifest.requirements:
        needed = parse_requirement(text)
        if needed.marker is not None and not needed.marker.evaluate():
            continue
        try:
            installed = version(needed.name)
        except PackageNotFoundError:
            found.append((text, f"no {needed.name}"))
            continue
        if not needed.specifier.contains(installed, prereleases=True):
            found.append((text, f"{needed.name} {installed}"))
    return found


def check_fits(manifest: Manifest) -> None:
    """Check that a bundle can run in this process.

    Raises:
        BundleRefused: another version of Python, Podium or Ray packed it, or a requirement is not installed.
    """
    for needed, there in lacking(manifest):
        raise BundleRefused(
            f"the code bundle {short_id(manifest.bundle)} requires {needed}, and the node {socket.gethostname()} has "
            f"{there}: install it on the node, then podium reload; or deploy again from what the node has"
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
