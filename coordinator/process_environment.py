"""Working directory, Python and variables of a service, which its agents inherit; comparison with those of a client.

Values of variables may be secrets: only hashes are compared, and values are never shown.
"""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coordinator.environment import variables

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ProcessEnvironment", "differences", "is_conventional", "names_in"]

_CONVENTIONAL: Final = re.compile(
    r"""
    (?!(VSCODE|KITTY|WEZTERM|ITERM|KONSOLE|GNOME|TERM|TMUX|XDG|DBUS|SSH|GPG)_)(               # of a terminal or session
    PATH | PYTHON.* | VIRTUAL_ENV | CONDA_PREFIX | LD_LIBRARY_PATH | LD_PRELOAD | TZ           # programs and libraries
    | PODIUM_(?!HOME$|HOST$).*                                                                 # settings
    | .*_(KEY|KEY_ID|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS|AUTH)                            # credentials
    | .*_(URL|URI|DSN|ENDPOINT|API_BASE|PROXY|REGION|PROFILE|PROJECT|DEPLOYMENT|MODEL)         # endpoints, models
    | (https?|no|all)_proxy | SSL_CERT_(FILE|DIR) | (REQUESTS|CURL)_CA_BUNDLE
    | (AWS|AZURE|GOOGLE|OPENAI|ANTHROPIC|HF|HUGGINGFACE|MISTRAL|COHERE|OLLAMA)_.*)
    """,
    re.VERBOSE,
)
"""Variables that libraries read although the agent's source does not name them."""
_OF_A_SHELL: Final = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "AGENT_WORKSPACE"})
"""Variables that differ between shells: ignored even if the agent's source names them."""
_MAX_SOURCES: Final = 200
"""Most modules beside an agent's file that are searched for names of variables."""
_DIGEST: Final = 16


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """The environment of a process."""

    directory: str
    """The working directory."""
    python: str
    """``sys.prefix``: the virtual environment, if there is one."""
    variables: Mapping[str, str]
    """Hash of the value of each environment variable, by name."""

    @classmethod
    def of_this_process(cls) -> ProcessEnvironment:
        """Return the environment of this process as it is now."""
        try:
            directory = str(Path.cwd())
        except FileNotFoundError:
            directory = "a removed directory"
        hashes = {name: _hash(value) for name, value in variables().items()}
        return cls(directory, sys.prefix, hashes)

    def without(self, variables: Mapping[str, str]) -> list[str]:
        """Return the names of those of some variables that it does not have, or has with another value."""
        return sorted(name for name, value in variables.items() if self.variables.get(name) != _hash(value))

    def to_wire(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self)

    @classmethod
    def from_wire(cls, value: dict[str, Any]) -> ProcessEnvironment:
        """Parse the JSON object that `to_wire` returns."""
        return cls(value["directory"], value["python"], value["variables"])


def differences(service: ProcessEnvironment, client: ProcessEnvironment, named: frozenset[str]) -> list[str]:
    """Return how a client's environment differs from a service's, a phrase for each difference, without values.

    Args:
        named: the variables that the agent's source names; conventional variables are compared in any case.
    """
    found = []
    if service.directory != client.directory:
        found.append(f"working directory {service.directory} (here {client.directory})")
    if service.python != client.python:
        found.append(f"Python {service.python} (here {client.python})")
    for name in sorted(service.variables.keys() | client.variables.keys()):
        there, here = service.variables.get(name), client.variables.get(name)
        if there != here and name not in _OF_A_SHELL and (name in named or is_conventional(name)):
            how = "set here only" if there is None else "not set here" if here is None else "another value here"
            found.append(f"{name} ({how})")
    return found


def is_conventional(name: str) -> bool:
    """Whether a variable is one that programs and libraries conventionally read."""
    return _CONVENTIONAL.fullmatch(name) is not None


def names_in(file: str, names: frozenset[str]) -> frozenset[str]:
    """Return those of ``names`` that an agent's file, or a module beside it, contains as a string literal."""
    path = Path(file)
    found: set[str] = set()
    for source in [path, *sorted(path.parent.glob("*.py"))[:_MAX_SOURCES]]:
        try:
            text = source.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        found.update(name for name in names - found if f'"{name}"' in text or f"'{name}'" in text)
    return frozenset(found)


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:_DIGEST]
