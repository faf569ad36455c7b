"""What a YAML file of a tool may have, and the tool that it makes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chronicle.errors import InvalidInput
from podium.answer_schema import check_schema
from podium.errors import InvalidTool
from podium.tools.files.http_tool import HttpTool
from podium.tools.files.request_template import HeaderTemplate, UrlTemplate, body_template
from podium.tools.files.schema_arguments import SchemaArguments
from podium.tools.files.shell_template import shell_script
from podium.tools.files.shell_tool import ShellTool
from podium.tools.files.template import TemplateError, read_template
from podium.tools.tool_spec import CONSENT_MODES, Tool
from podium.validation import reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from podium.tools.files.template import Piece
    from podium.tools.files.yaml_file import YamlFile
    from podium.tools.tool_spec import Implementation

__all__ = ["tool_of_file"]

_TOKEN: Final = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
"""Of RFC 9110: the name of a header."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Http(_Strict):
    kind: Literal["http"]
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    url: str
    headers: dict[Annotated[str, Field(pattern=_TOKEN)], str] = {}
    body_template: str | None = None
    timeout_secs: float = Field(default=120.0, gt=0)


class _Shell(_Strict):
    kind: Literal["shell"]
    command_template: str
    timeout_secs: float = Field(default=120.0, gt=0)


class _ToolFile(_Strict):
    name: str
    description: str
    parameters: dict[str, Any]
    implementation: Annotated[_Http | _Shell, Field(discriminator="kind")]
    mode: str | None = None
    requires_approval: bool = False
    no_resume: bool = False


def tool_of_file(file: YamlFile, environment: Mapping[str, str]) -> Tool:
    """Return the tool that a file declares.

    Args:
        environment: the variables of ``${env.NAME}``.

    Raises:
        InvalidTool: the file has a mistake; the message has the line and the column.
    """
    try:
        declared = _ToolFile.model_validate(file.content)
    except ValidationError as error:
        first = min(
            error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden"
        )  # a misspelt key
        place = [part for part in first["loc"] if part not in {"http", "shell", "[key]"}]
        raise file.error(place, reason_of(first["msg"])) from None
    parameters = declared.parameters
    try:
        check_schema(parameters)
    except InvalidInput as error:
        raise file.error(["parameters"], str(error)) from None
    if parameters.get("type") != "object" or not isinstance(parameters.get("properties", {}), dict):
        raise file.error(["parameters"], "the schema of arguments has 'type: object' and 'properties'")
    made = declared.implementation
    reading = _Reading(file, list(parameters.get("properties", {})), environment)
    implementation = reading.http(made, parameters) if isinstance(made, _Http) else reading.shell(made, parameters)
    mode = declared.mode or _mode_of(made)
    try:
        return Tool(
            declared.name,
            declared.description,
            parameters,
            implementation,
            mode,
            requires_approval=declared.requires_approval,
            timeout_s=made.timeout_secs,
            require_consent=mode in CONSENT_MODES,
            no_resume=declared.no_resume,
            place=file.place(["name"]),
        )
    except InvalidTool as error:
        raise InvalidTool(str(error)) from None


def _mode_of(made: _Http | _Shell) -> str:
    """Return the mode of a tool that says none: a command does what it wants within its sandbox."""
    if isinstance(made, _Shell):
        return "local"
    return "read" if made.method == "GET" else "write"


class _Reading:
    """Reads the templates of a file."""

    def __init__(self, file: YamlFile, names: Sequence[str], environment: Mapping[str, str]) -> None:
        self._file = file
        self._names = names
        self._environment = environment

    def http(self, made: _Http, parameters: dict[str, Any]) -> Implementation:
        url = self._read(["implementation", "url"], made.url, UrlTemplate)
        headers = [
            self._read(["implementation", "headers", name], text, partial(HeaderTemplate, name))
            for name, text in made.headers.items()
        ]
        body = None
        if made.body_template is not None:
            declared = next((text for name, text in made.headers.items() if name.lower() == "content-type"), "")
            media_type = declared.partition(";")[0].strip().lower() or "application/json"
            body = self._read(
                ["implementation", "body_template"],
                made.body_template,
                partial(body_template, media_type),
            )
        return HttpTool(SchemaArguments(parameters), made.method, url, headers, body)

    def shell(self, made: _Shell, parameters: dict[str, Any]) -> Implementation:
        script = self._read(["implementation", "command_template"], made.command_template, shell_script)
        return ShellTool(SchemaArguments(parameters), script)

    def _read(self, at: list[str], text: str, made: Callable[[list[Piece]], Any]) -> Any:
        try:
            return made(read_template(text, self._names, self._environment))
        except TemplateError as error:
            line = text.count("\n", 0, error.offset) + 1
            column = error.offset - (text.rfind("\n", 0, error.offset) + 1) + 1
            raise self._file.error(at, f"{error} (line {line}, column {column} of the text)") from None
