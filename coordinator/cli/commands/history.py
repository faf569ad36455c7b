"""``podium history``: the versions of one path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import write_json
from coordinator.cli.lookup import split_moment
from coordinator.cli.options import (
    DEFAULT_HOME,
    ApiKeyOption,
    DebugOption,
    HomeOption,
    JsonOption,
    MomentArgument,
    UrlOption,
)
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, rest_in, say_rest
from coordinator.cli.stores import opened_blobs, read_journal
from coordinator.cli.views.files import show_versions

if TYPE_CHECKING:
    from pathlib import Path

    from coordinator.cli.paging import Bounds
    from coordinator.operations.cursors import Rest

__all__ = ["history"]


def history(
    moment: MomentArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="From the workspace's root.")],
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    home: HomeOption = DEFAULT_HOME,
    url: UrlOption = "",
    api_key: ApiKeyOption = "",
    json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - noted while it is parsed
) -> None:
    """List the versions of one of an agent's files.

    Only committed versions are shown; `podium cat` prints one.
    """
    from podium.turn.upload import clean_path  # noqa: PLC0415  slow to import, and --help needs none

    wanted, path = bounds(limit, cursor, everything=everything), clean_path(path)
    if url:
        from coordinator.cli.remote import reading as remote  # noqa: PLC0415  only for a remote home
        from coordinator.cli.remote.connection import Gateway  # noqa: PLC0415

        versions, rest = remote.history(Gateway(url, api_key), moment, path, wanted)
    else:
        versions, rest = _read(home, moment, path, wanted)
    if json:
        write_json(versions)
    else:
        show_versions(versions)
    say_rest(rest)


def _read(home: Path, moment: str, path: str, wanted: Bounds) -> tuple[list[dict[str, Any]], Rest]:
    from coordinator.operations.files import file_history  # noqa: PLC0415  slow to import
    from podium.address import Address  # noqa: PLC0415

    with read_journal(home) as store, opened_blobs(home) as blobs:
        session, turn = split_moment(store, moment)
        page = file_history(store, blobs, Address.of(session), path, turn, limit=wanted.limit, cursor=wanted.cursor)
    return [version.as_json() for version in page.items], rest_in(page)
