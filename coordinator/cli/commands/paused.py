"""``podium paused``, ``resolve`` and ``link``: runs that wait for a decision, deciding, and letting others decide."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from chronicle.cli_kit.terminal import json_text, say, write_json, write_line
from chronicle.cli_kit.times import iso
from coordinator.cli.options import command
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, collect, say_rest
from coordinator.cli.target import Target
from coordinator.cli.terminal import table
from coordinator.cli.views.files import show_file_changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["link", "paused", "resolve"]

_COLUMNS: Final = ("RUN", "AGENT", "WAITS FOR", "UNTIL", "REASON", "ANSWER")
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The id of the run, as podium paused shows it.")]


@command
def paused(
    of: Annotated[
        str | None,
        typer.Argument(metavar="[TYPE/KEY|RUN]", help="Only this agent, or one run; by default all of the tenant."),
    ] = None,
    *,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    target: Target,
) -> None:
    """List the runs whose turns are paused, and what each waits for.

    Of one run also the files that its turn has added (A), changed (M) and removed (D) so far.

    A run is the handling of one message, and has its id. Messages behind it wait until it goes on: podium resolve
    answers it, podium link lets somebody without a key answer it, podium drop cancels it.
    """
    if of is not None and "/" not in of:
        _show_run(target, of)
        return
    agent = of
    wanted = bounds(limit, cursor, everything=everything, target=target)
    found, rest = target.ask(
        "reading what waits",
        lambda podium: collect(lambda limit, cursor: podium.pages().paused(agent, limit=limit, cursor=cursor), wanted),
        *((agent,) if agent is not None else ()),
    )
    if target.json:
        write_json({"runs": found, **rest})
        return
    if not found:
        say("no run is paused")
    else:
        table(_COLUMNS, [_row(each) for each in found])
        _say_how(found)
    say_rest(rest)


@command
def resolve(
    run: RunArgument,
    answer: Annotated[
        str | None, typer.Argument(metavar="[JSON]", help="The answer, such as 'true' or '{\"verdict\": \"yes\"}'.")
    ] = None,
    *,
    promise: Annotated[
        str | None, typer.Option("--promise", metavar="NAME", help="Refuse it if the run waits for another promise.")
    ] = None,
    reject: Annotated[
        str | None, typer.Option("--reject", metavar="TEXT", help="Reject the promise, in place of an answer: why.")
    ] = None,
    call: Annotated[
        str | None, typer.Option("--call", metavar="CALL", help="Refuse the answer if the run waits at another step.")
    ] = None,
    target: Target,
) -> None:
    """Answer a paused run, or reject the promise that it waits for; it then goes on.

    The answer must fit the JSON Schema of the request, which podium paused --json shows. It is taken once.
    """
    if (answer is None) == (reject is None):
        raise typer.BadParameter("give an answer, or --reject with the reason")
    if reject is not None:
        if call is not None:
            raise typer.BadParameter("--call is of an answer; a promise that is rejected is named by --promise")
        done = target.ask(f"answering {run}", lambda podium: podium.reject(run, reject, promise=promise), writes=True)
    else:
        value = _json(answer or "")
        done = target.ask(
            f"answering {run}", lambda podium: podium.resume(run, value, call_id=call, promise=promise), writes=True
        )
    if target.json:
        write_json(done.as_json())
    else:
        write_line(f"{run} of {done.agent} goes on")


@command
def link(
    run: RunArgument,
    *,
    promise: Annotated[
        str | None, typer.Option("--promise", metavar="NAME", help="Refuse it if the run waits for another promise.")
    ] = None,
    expires: Annotated[str, typer.Option("--expires", metavar="DURATION", help="Such as 90m or 2d; at most 30d.")] = (
        "2d"
    ),
    target: Target,
) -> None:
    """Make a link by which its holder answers, once, what a paused run waits for.

    Whoever has the link needs no key, and can do nothing else. It ends with its answer, with the question, and after
    its time; podium keys revoke LINK_ID ends it at once.
    """
    from coordinator.access.lifetimes import seconds_of  # noqa: PLC0415

    seconds = seconds_of(expires)
    made = target.ask(
        f"making a link for {run}",
        lambda podium: podium.link(run, promise=promise, expires_in_s=seconds),
        writes=True,
    )
    if target.json:
        write_json(made.as_json())
        return
    write_line(f"{target.gateway_url()}{made.path}")
    say(f"{made.link_id}: {made.call_id} of {made.agent} until {iso(made.expires_at)}; it cannot be shown again")


def _show_run(target: Target, run_id: str) -> None:
    found = target.ask("reading the run", lambda podium: podium.paused_run(run_id)).as_json()
    if target.json:
        write_json(found)
        return
    table(_COLUMNS, [_row(found)])
    _say_how([found])
    if found["files"] is None:
        say(f"the files of turn {found['base_turn']}, on which it began, are not kept")
        return
    show_file_changes(found["files"])
    if more := found["files_changed"] - len(found["files"]):
        say(f"and {more} more")


def _say_how(runs: Sequence[Mapping[str, Any]]) -> None:
    """Say how to answer, if any of the runs waits for an answer."""
    if any(run["kind"] != "sleep" for run in runs):
        say("podium resolve RUN JSON answers; podium link RUN makes a link for somebody who has no key")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no JSON ({error}); a text needs quotes inside: '\"yes\"'") from error


def _row(run: dict[str, Any]) -> tuple[str, ...]:
    until = iso(run["expires"]) if run["expires"] is not None else "-"
    waits_for = "its time" if run["kind"] == "sleep" else run["call_id"]
    return run["run_id"], run["agent"], waits_for, until, run["reason"] or "-", _schema_text(run["schema"])


def _schema_text(schema: Any) -> str:
    """Return what a schema asks for in a few words."""
    match schema:
        case False:
            return "-"
        case {"enum": [*values]}:
            return " or ".join(map(json_text, values))
        case {"type": "object", "properties": dict(names)}:
            return f"{{{', '.join(names)}}}"
        case {"type": str(kind)}:
            return kind
        case _:
            return "JSON"
