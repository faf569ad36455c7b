"""``podium token``: short-lived tokens for one agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.canonical import JsonObject
    from coordinator.access.caller import Scope
    from coordinator.access.keys import Key
    from coordinator.access.records import KeyRecords

__all__ = ["app"]

app = typer.Typer(help="Create short-lived tokens for one agent.", no_args_is_help=True)


@app.callback()
def token() -> None:
    """Have its commands named, though there is one."""


@app.command("create")
@command
def create(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The only agent that it is for: type/key.")],
    *,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="read|answer|write", help="What it permits: write also to read and answer."),
    ] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="Such as 90s or 12h; at most 1d.")] = (
        "15m"
    ),
    claims: Annotated[
        str, typer.Option("--claims", metavar="JSON", help="What agents are told of who has it: an object.")
    ] = "{}",
    made_by: Annotated[
        str | None,
        typer.Option("--made-by", metavar="KEY_ID", help="The key with which it ends; by default the local key."),
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Create a token, and print it: it cannot be shown again.

    By default it permits to read.
    """
    import asyncio  # noqa: PLC0415  slow to import, and --help needs none
    from contextlib import closing  # noqa: PLC0415

    from chronicle.clock import SystemClock  # noqa: PLC0415
    from coordinator.access.administration import KeyAdministration  # noqa: PLC0415
    from coordinator.access.audit import Audit  # noqa: PLC0415
    from coordinator.access.caller import Caller, with_implied  # noqa: PLC0415
    from coordinator.access.lifetimes import seconds_of  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from podium.address import Address  # noqa: PLC0415

    address, scopes, seconds, said = (
        Address.parse(agent),
        _scopes(scope or ["read"]),
        seconds_of(expires),
        _object(claims),
    )
    opened = Home(home).open()
    with closing(open_records(opened).keys()) as keys:
        key = _maker(keys, opened.path, made_by)
        caller = Caller(key.key_id, with_implied(key.scopes), tenant=key.tenant)
        administration = KeyAdministration(keys, Audit(opened.logs, SystemClock()), SystemClock())
        made = asyncio.run(administration.create_token(caller, None, address, scopes, seconds, said))
    if json:
        write_json(dict(made))
        return
    write_line(made["token"])
    say(
        f"{made['token_id']}: {' '.join(made['scopes'])} at {address} until {iso(made['expires_at'])}; "
        "the token cannot be shown again"
    )


def _scopes(names: list[str]) -> list[Scope]:
    from chronicle.errors import InvalidInput  # noqa: PLC0415
    from coordinator.access.caller import Scope  # noqa: PLC0415

    try:
        return [Scope(name) for name in names]
    except ValueError:
        raise InvalidInput(f"a token has the scopes read, answer or write, and not {', '.join(names)}") from None


def _object(text: str) -> JsonObject:
    from chronicle.canonical import decode_input  # noqa: PLC0415
    from chronicle.errors import InvalidInput  # noqa: PLC0415

    found = decode_input(text.encode())
    if not isinstance(found, dict):
        raise InvalidInput('claims are a JSON object, such as \'{"sub": "ann"}\'')
    return found


def _maker(keys: KeyRecords, home: Path, key_id: str | None) -> Key:
    """Return the key that makes the token.

    Raises:
        NotFound: there is none.
    """
    from chronicle.errors import NotFound  # noqa: PLC0415
    from coordinator.access.local_key import read_local_key  # noqa: PLC0415

    if key_id is None:
        text = read_local_key(home)
        found = keys.find(text) if text is not None else None
        if found is None:
            raise NotFound("this home has no local key: name the key with which the token ends, by --made-by KEY_ID")
        return found
    found = next((key for key in keys.listed() if key.key_id == key_id), None)
    if found is None:
        raise NotFound(f"there is no key {key_id!r}; podium keys list shows the ids")
    return found
