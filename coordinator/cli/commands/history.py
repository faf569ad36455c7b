"""``podium history``: the versions of one path."""

from __future__ import annotations

from typing import Annotated

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.files import opened_files
from coordinator.cli.options import (
    DEFAULT_HOME,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    MomentArgument,
    UrlOption,
)
from coordinator.cli.views.files import show_versions

__all__ = ["history"]


def history(
    moment: MomentArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="From the workspace's root.")],
    *,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List all versions of one of an agent's files.

    Only committed versions are shown; `podium cat` prints one.
    """
    from coordinator.operations.files import version_object  # noqa: PLC0415  slow to import, and --help needs none
    from podium.turn.upload import clean_path  # noqa: PLC0415

    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        remote.history(Gateway(url, api_key), moment, clean_path(path), json=json)
        return
    path = clean_path(path)
    with opened_files(home, moment) as files:
        records = files.history(path)
    versions = [version_object(record) for record in records]
    if json:
        write_json(versions)
    else:
        show_versions(versions)
