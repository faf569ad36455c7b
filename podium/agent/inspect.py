"""Inspection of a user's agent class in a child process, without importing it here.

Run as ``python -m podium.agent.inspect FILE CLASS FD``, this module is that process: it writes one JSON object to the
file descriptor, so that output of the user's code during the import does no harm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from podium import errors
from podium.agent.spec import parse_spec
from podium.errors import AgentFileBroken, AgentLoadError
from podium.settings import environment_with_workspace

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from chronicle.canonical import JsonObject

__all__ = ["AgentInfo", "inspect_agent"]

_TIMEOUT_S: Final = 60.0
"""Time limit of an import: heavy libraries need seconds, never a minute."""

_DETAIL_LIMIT: Final = 20_000
"""Characters of a traceback that are returned: its end, which has the cause."""


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """The description of an agent class."""

    file: str
    """Absolute path."""
    class_name: str
    agent_type: str
    entity_type: str
    schema_version: int
    idle_timeout_s: float
    accepts_client_state: bool = False
    """Whether messages have the state of an AG-UI front end."""
    interface: JsonObject = field(default_factory=dict)
    """The handlers of the class with their schemas, and of which sources; empty if it has none."""
    sources: tuple[str, ...] = ()
    """As of `podium.agent.sources.imported_sources`."""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> AgentInfo:
        """Return the description that `dataclasses.asdict` has made into JSON.

        Raises:
            TypeError: it is that of another version.
        """
        return cls(**{**fields, "sources": tuple(fields.get("sources", ()))})


def inspect_agent(
    spec: str,
    directory: Path | None = None,
    variables: Mapping[str, str] | None = None,
    without: Collection[str] = (),
) -> AgentInfo:
    """Load the class that a spec names in a child process, and return its description.

    Args:
        directory: what the spec is relative to; the working directory by default.
        variables: environment variables of that process, unless they are set in this one.
        without: variables that it does not get.

    Raises:
        AgentLoadError: it cannot be used; the subclass tells why.
        InvalidInput: the spec names no class.
    """
    path, class_name = parse_spec(spec, directory)
    with tempfile.TemporaryFile() as file, tempfile.TemporaryDirectory(prefix="podium-inspect-") as scratch:
        finished = _run(path, class_name, file.fileno(), scratch, variables or {}, without)
        file.seek(0)
        answer = file.read()
    if not answer:
        raise AgentFileBroken(
            f"importing {path} ended its process (exit code {finished.returncode})",
            finished.stderr.decode(errors="replace"),
        )
    report = json.loads(answer)
    if "error" in report:
        kind: type[AgentLoadError] = getattr(errors, report["error"])
        raise kind(report["message"], report["detail"])
    return AgentInfo.from_json(report)


def _run(
    path: Path, class_name: str, answer_fd: int, scratch: str, variables: Mapping[str, str], without: Collection[str]
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "podium.agent.inspect", str(path), class_name, str(answer_fd)]
    inherited = {**variables, **environment_with_workspace(scratch)}
    try:
        return subprocess.run(
            command,
            pass_fds=(answer_fd,),
            env={name: value for name, value in inherited.items() if name not in without},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AgentFileBroken(
            f"importing {path} took longer than {_TIMEOUT_S:g} s; move slow work into on_init"
        ) from error


def _report(path: str, class_name: str) -> dict[str, object]:
    """Load a class and return its description, or the error, as plain JSON."""
    from pathlib import Path  # noqa: PLC0415  the parent process does not need these imports

    from podium.agent.agent_types import agent_type_of  # noqa: PLC0415
    from podium.agent.handler_specs import interface_of  # noqa: PLC0415
    from podium.agent.loader import load_agent_class  # noqa: PLC0415
    from podium.agent.sources import imported_sources, marks_of  # noqa: PLC0415

    before = frozenset(sys.modules)

    try:
        cls = load_agent_class(Path(path), class_name)
    except AgentLoadError as error:
        return {"error": type(error).__name__, "message": str(error), "detail": error.detail[-_DETAIL_LIMIT:]}
    agent_type = agent_type_of(cls)
    sources, interface = imported_sources(path, before), interface_of(cls)
    return asdict(
        AgentInfo(
            file=path,
            class_name=class_name,
            agent_type=agent_type,
            entity_type=cls.State._entity_type or agent_type,  # noqa: SLF001  the documented way to declare it
            schema_version=cls.State._version,  # noqa: SLF001
            idle_timeout_s=float(cls.idle_timeout_s),
            accepts_client_state=bool(cls.accepts_client_state),
            interface={**interface, "sources": marks_of(sources)} if interface else {},
            sources=sources,
        )
    )


if __name__ == "__main__":
    _path, _class_name, _fd = sys.argv[1:]
    _answer = json.dumps(_report(_path, _class_name))
    with os.fdopen(int(_fd), "w") as _file:
        _file.write(_answer)
