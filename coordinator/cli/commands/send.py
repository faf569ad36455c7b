"""``podium send`` and ``podium chat``: messages to an agent of any home, by its address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from coordinator.cli.options import AgentArgument, command
from coordinator.cli.target import Target
from podium.turn.busy import BusyPolicy

if TYPE_CHECKING:
    from coordinator.client.async_client import AsyncPodium

__all__ = ["chat", "send"]

WhenBusyOption = Annotated[
    BusyPolicy, typer.Option("--when-busy", help="The policy if it is busy with another message.")
]


@command
def send(
    agent: AgentArgument,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help='The message; it is sent as {"text": TEXT}.')
    ] = None,
    *,
    json_message: Annotated[
        str | None,
        typer.Option("--json-message", metavar="JSON", help="The message, a JSON object, instead of TEXT."),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Print the message id, and do not wait for the reply.")
    ] = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="KEY", help="With --no-wait: a second message with it is not sent."),
    ] = None,
    when_busy: WhenBusyOption = BusyPolicy.ENQUEUE,
    target: Target,
) -> None:
    """Send one message to an agent, and print its reply.

    The agent's type must be registered at the server (podium up). Ctrl-C cancels the reply. With --json each frame of
    the reply is one line on stdout.
    """
    from coordinator.cli.conversation import admit  # noqa: PLC0415  slow to import, and --help needs none
    from coordinator.cli.conversation import send as send_and_show  # noqa: PLC0415

    message = _message(text, json_message)
    if idempotency_key is not None and not no_wait:
        raise typer.BadParameter("--idempotency-key needs --no-wait")

    async def talk(podium: AsyncPodium) -> int:
        if not no_wait:
            return await send_and_show(podium, agent, message, when_busy, json=target.json)
        await admit(podium, agent, message, idempotency_key, when_busy, json=target.json)
        return 0

    raise typer.Exit(target.run(talk))


@command
def chat(
    agent: AgentArgument,
    *,
    when_busy: WhenBusyOption = BusyPolicy.ENQUEUE,
    target: Target,
) -> None:
    """Chat with an agent: each line is a message.

    The agent's type must be registered at the server (podium up); podium run FILE.py:Class needs no server. Ctrl-C
    cancels a reply, Ctrl-D exits.
    """
    from coordinator.cli.conversation import converse  # noqa: PLC0415  slow to import, and --help needs none

    raise typer.Exit(target.run(lambda podium: converse(podium, agent, when_busy, json=target.json)))


def _message(text: str | None, json_message: str | None) -> dict[str, Any]:
    """Return the message of the command line.

    Raises:
        InvalidInput: there is none, or it is no JSON object.
    """
    from chronicle.canonical import decode_input  # noqa: PLC0415
    from chronicle.errors import InvalidInput  # noqa: PLC0415

    if (text is None) == (json_message is None):
        raise InvalidInput("give a TEXT or --json-message, one of the two")
    if json_message is None:
        return {"text": text}
    message = decode_input(json_message.encode("utf-8", "surrogateescape"))
    if not isinstance(message, dict):
        raise InvalidInput("--json-message is not a JSON object")
    return message
