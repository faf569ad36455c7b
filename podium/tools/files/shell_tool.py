"""Tools that are commands of a shell, in the sandbox of the agent's commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.tools.files.template import text_of
from podium.tools.tool_spec import BadArguments

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chronicle.canonical import Json, JsonObject
    from podium.agent.commands import Ran
    from podium.tools.files.schema_arguments import SchemaArguments
    from podium.tools.files.shell_template import ShellScript

__all__ = ["ShellTool", "result_of_command"]


@dataclass(frozen=True, slots=True)
class ShellTool:
    """A command as the `podium.tools.tool_spec.Implementation` of a tool. It runs by ``ctx.run``, in a turn only."""

    parameters: SchemaArguments
    script: ShellScript
    needs_context = True

    def bind(self, arguments: JsonObject) -> Mapping[str, object]:
        """See `podium.tools.tool_spec.Implementation`."""
        self.parameters.check(arguments)
        values = [_value(name, arguments.get(name)) for name in self.script.arguments]
        return {"argv": ["/bin/sh", "-c", self.script.text, "sh", *values]}

    async def call(self, bound: Mapping[str, object], context: Any) -> Json:
        """See `podium.tools.tool_spec.Implementation`."""
        return result_of_command(await context.run(bound["argv"]))


class CommandFailed(Exception):
    """A command ended with another status than 0, or at a limit."""


def result_of_command(ran: Ran) -> Json:
    """Return what a model gets of a command: its output, and what it wrote to stderr, if it wrote there.

    Raises:
        CommandFailed: it failed.
    """
    if not ran.ok:
        why = f"the limit of {ran.limit} was reached" if ran.limit is not None else f"exit status {ran.status}"
        raise CommandFailed("\n".join(each for each in (why, ran.stderr, ran.stdout) if each))
    return {"stdout": ran.stdout, "stderr": ran.stderr} if ran.stderr else ran.stdout


def _value(name: str, value: Json) -> str:
    text = text_of(value)
    if "\0" in text:
        raise BadArguments((f"{name}: a command cannot have a NUL character in an argument",))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadArguments((f"{name}: it has half of a surrogate pair, which is no text",)) from None
    return text
