"""``podium models``: the profiles of models of a home, and the records of their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronicle.cli_kit.terminal import say, write_json
from chronicle.cli_kit.times import iso
from coordinator.cli.options import DEFAULT_HOME, HomeOption, JsonOption, command
from coordinator.cli.paging import AllOption, CursorOption, LimitOption, bounds, say_rest
from coordinator.cli.terminal import table

if TYPE_CHECKING:
    from coordinator.models.calls import CallRecord
    from coordinator.models.profiles import Profile

__all__ = ["app"]

app = typer.Typer(help="List the profiles of models, and the records of their calls.", invoke_without_command=True)


@app.callback()
@command
def models(
    context: typer.Context,
    *,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """List the profiles of models that are in force, and the budgets; with `calls`, what was asked of them."""
    if context.invoked_subcommand is not None:
        return
    from coordinator.home import Home  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from coordinator.models.config_file import read_config  # noqa: PLC0415

    config = read_config(open_records(Home(home).open()).documents())
    if json:
        write_json({"models": [_profile(each) for each in config.profiles.values()], "budgets": dict(config.budgets)})
        return
    if not config.profiles:
        say("no models yet: add [models.NAME] to podium.toml; podium up, run and reload read it")
        return
    table(
        ("PROFILE", "PROVIDER", "MODEL", "SERVER", "KEY", "EXECUTION", "FALLBACKS", "EMERGENCY"),
        [
            (
                each.name,
                each.provider,
                each.model or "-",
                each.base_url or "-",
                _key(each),
                each.execution,
                " ".join(each.fallbacks) or "-",
                each.emergency_fallback or "-",
            )
            for each in config.profiles.values()
        ],
    )
    for tenant, amount in config.budgets.items():
        say(f"budget of {'each other tenant' if tenant == '*' else tenant}: {amount} a day")


@app.command("calls")
@command
def calls(
    *,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="Only those of this tenant; by default of all.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="AGENT", help="Only those of this agent, or of this response.")
    ] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Only those of this profile.")] = None,
    limit: LimitOption = None,
    cursor: CursorOption = None,
    everything: AllOption = False,
    home: HomeOption = DEFAULT_HOME,
    json: JsonOption = False,
) -> None:
    """List the calls of models, the latest first: tokens, cost, times and how they ended.

    Calls are recorded whether or not their turns are committed.
    """
    from coordinator.home import Home  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.homes.opening import open_records  # noqa: PLC0415
    from coordinator.operations.model_calls import record_page  # noqa: PLC0415

    wanted = bounds(limit, cursor, everything=everything)
    log = open_records(Home(home).open()).call_log()
    found, rest = record_page(log, tenant, owner, profile, wanted.limit, wanted.cursor)
    if json:
        write_json({"calls": [record.to_json() for record in found], **rest})
        return
    if not found:
        say("no calls yet")
        return
    table(
        ("STARTED", "OWNER", "TURN", "PROFILE", "MODEL", "STATUS", "IN", "CACHED", "OUT", "COST", "TTFT MS", "MS"),
        [
            (
                iso(each.started_ms),
                each.owner or "-",
                _shown(each.turn),
                each.profile,
                each.model or "-",
                _status(each),
                _shown(each.input_tokens),
                _shown(each.cached_tokens),
                _shown(each.output_tokens),
                _shown(each.cost),
                _shown(each.ttft_ms),
                _shown(each.latency_ms),
            )
            for each in found
        ],
    )
    say_rest(rest)


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "profile": profile.name,
        "provider": profile.provider,
        "model": profile.model,
        "base_url": profile.base_url,
        "key": _key(profile),
        "execution": profile.execution,
        "fallbacks": list(profile.fallbacks),
        "emergency_fallback": profile.emergency_fallback,
        "tenants": sorted(profile.tenants),
    }


def _key(profile: Profile) -> str:
    """Return where the key is, never the key."""
    if profile.api_key_env is not None:
        return f"${profile.api_key_env}"
    return profile.api_key_file or "-"


def _status(record: CallRecord) -> str:
    return record.status if record.error is None else f"{record.status}: {record.error['kind']}"


def _shown(value: float | str | None) -> str:
    return "-" if value is None else str(value)
