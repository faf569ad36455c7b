"""``podium keys``: the API keys of a home."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command, urls_of
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coordinator.access.audit import Audit
    from coordinator.access.keys import Key
    from coordinator.access.records import KeyRecords

__all__ = ["app"]

app = typer.Typer(help="Create, list, revoke and rotate the API keys of a home.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY_ID", help="As podium keys list shows it.")]


@app.command("create")
@command
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for; shown in lists.")],
    *,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose agents it may use.", show_default=True)] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="read|answer|write|metrics|deploy|admin",
            help="What it permits: write also to read and answer, admin all.",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="Such as 90d, 12h or 30m; by default never.")
    ] = None,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Create a key, and print it: it cannot be shown again.

    By default it permits to read and to write.
    """
    from chronicle.clock import SystemClock  # noqa: PLC0415  slow to import, and --help needs none
    from chronicle.errors import InvalidInput  # noqa: PLC0415
    from coordinator.access.caller import Scope  # noqa: PLC0415
    from coordinator.access.lifetimes import seconds_of  # noqa: PLC0415
    from podium.address import check_tenant  # noqa: PLC0415

    check_tenant(tenant)
    known = [each.value for each in Scope]
    for each in scope or ():
        if each not in known:
            raise InvalidInput(f"there is no scope {each!r}; the scopes are {', '.join(known)}")
    scopes = [Scope(each) for each in scope or ("read", "write")]
    now_ms = SystemClock().now_ms()
    expires_ms = now_ms + seconds_of(expires) * 1000 if expires is not None else None
    with _opened(home) as (keys, audit):
        key, text = keys.create(name, tenant, scopes, now_ms, expires_ms=expires_ms)
        _note(audit, "key.create", key)
    _show_text(key, text, json=json)


@app.command("list")
@command
def list_(
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """List the keys: their ids, first characters, tenants, scopes and times. Never their texts."""
    with _opened(home) as (keys, _):
        found = keys.listed()
    if json:
        write_json({"keys": [_object(key) for key in found]})
        return
    if not found:
        say("no keys yet: podium keys create NAME makes one")
        return
    table(
        ("ID", "NAME", "KEY", "TENANT", "SCOPES", "CREATED", "EXPIRES", "LAST USED"),
        [
            (
                key.key_id,
                key.name,
                f"{key.prefix}…",
                key.tenant,
                " ".join(sorted(key.scopes)),
                iso(key.created_ms),
                "never" if key.expires_ms is None else iso(key.expires_ms),
                "never" if key.last_used_ms is None else iso(key.last_used_ms),
            )
            for key in found
        ],
    )


@app.command("revoke")
@command
def revoke(
    key_id: KeyArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Remove a key, with the tokens that it made. Requests with it are refused from now on."""
    with _opened(home) as (keys, audit):
        key = keys.revoke(key_id)
        _note(audit, "key.revoke", key)
    if json:
        write_json({"key_id": key.key_id, "revoked": True})
    else:
        say(f"{key.key_id} ({key.name}) is revoked")


@app.command("rotate")
@command
def rotate(
    key_id: KeyArgument,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """Replace the text of a key, and print the new one. The old one is refused from now on."""
    with _opened(home) as (keys, audit):
        key, text = keys.rotate(key_id)
        _note(audit, "key.rotate", key)
    _show_text(key, text, json=json)


@contextmanager
def _opened(home: Path) -> Iterator[tuple[KeyRecords, Audit]]:
    """Open the keys of a home, which is created if it does not exist, and its audit record."""
    from contextlib import closing  # noqa: PLC0415

    from chronicle.clock import SystemClock  # noqa: PLC0415
    from coordinator.access.audit import Audit  # noqa: PLC0415
    from coordinator.home import Home  # noqa: PLC0415
    from coordinator.homes.opening import create_home, open_records  # noqa: PLC0415

    opened = create_home(Home(home), *urls_of(None, "", ""))
    with closing(open_records(opened).keys()) as keys:
        yield keys, Audit(opened.logs, SystemClock())


def _note(audit: Audit, what: str, key: Key) -> None:
    audit.note(f"cli uid {os.getuid()}", what, tenant=key.tenant, key_id=key.key_id)


def _show_text(key: Key, text: str, *, json: bool) -> None:
    if json:
        write_json({**_object(key), "key": text})
        return
    write_line(text)
    say(f"{key.key_id}: {' '.join(sorted(key.scopes))} in the tenant {key.tenant}; the key cannot be shown again")


def _object(key: Key) -> dict[str, Any]:
    from coordinator.access.views import key_object  # noqa: PLC0415

    return dict(key_object(key))
