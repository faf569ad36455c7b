"""Where a client's directory, Python and environment differ from its service's in what matters to agents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from coordinator.process_environment import ProcessEnvironment, differences, is_conventional, names_in

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "sk-do-not-show-this"
NONE: frozenset[str] = frozenset()


def here(monkeypatch: pytest.MonkeyPatch, directory: Path, **variables: str) -> ProcessEnvironment:
    """The surroundings of a process that has these variables, and no others that differ."""
    with monkeypatch.context() as context:
        context.chdir(directory)
        for name, value in variables.items():
            context.setenv(name, value)
        return ProcessEnvironment.of_this_process()


def test_the_same_surroundings_do_not_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = here(monkeypatch, tmp_path, MY_API_KEY=SECRET)
    wired = ProcessEnvironment.from_wire(json.loads(json.dumps(service.to_wire())))
    assert differences(wired, here(monkeypatch, tmp_path, MY_API_KEY=SECRET), NONE) == []


def test_what_matters_is_told_and_no_value_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    service = here(monkeypatch, tmp_path, MY_API_KEY="one", DB_URL="there", PODIUM_WARM_HOSTS="1", CURRENCY="EUR")
    client = here(monkeypatch, tmp_path / "other", MY_API_KEY=SECRET, PODIUM_WARM_HOSTS="2", CURRENCY="USD", TZ="UTC")
    client = ProcessEnvironment(client.directory, "/other/venv", client.variables)
    assert differences(service, client, NONE) == [
        f"working directory {tmp_path} (here {tmp_path / 'other'})",
        f"Python {service.python} (here /other/venv)",
        "DB_URL (not set here)",
        "MY_API_KEY (another value here)",
        "PODIUM_WARM_HOSTS (another value here)",
        "TZ (set here only)",
    ]
    assert "CURRENCY (another value here)" in differences(service, client, frozenset({"CURRENCY"}))
    assert SECRET not in json.dumps(client.to_wire())


def test_what_differs_from_terminal_to_terminal_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = ["SHLVL", "PWD", "OLDPWD", "_", "TERM", "COLUMNS", "WINDOWID", "SSH_AUTH_SOCK", "SSH_CLIENT", "TMUX_PANE"]
    noise += [
        "KITTY_PUBLIC_KEY",
        "VSCODE_GIT_IPC_AUTH_TOKEN",
        "XDG_SESSION_ID",
        "PODIUM_HOME",
        "PODIUM_HOST",
        "LS_COLORS",
    ]
    noise += ["DBUS_SESSION_BUS_ADDRESS", "GPG_TTY", "PS1", "INVOCATION_ID", "AGENT_WORKSPACE", "DISPLAY", "no_color"]
    service = here(monkeypatch, tmp_path, **dict.fromkeys(noise, "there"))
    client = here(monkeypatch, tmp_path, **dict.fromkeys(noise, "here"))
    assert differences(service, client, NONE) == []
    assert differences(service, client, frozenset({"SHLVL", "PWD", "TERM"})) == ["TERM (another value here)"]


@pytest.mark.parametrize(
    "name",
    ["PATH", "PYTHONPATH", "VIRTUAL_ENV", "OPENAI_API_KEY", "AWS_PROFILE", "https_proxy", "HTTPS_PROXY", "GITHUB_TOKEN",
     "DATABASE_URL", "PODIUM_PRESENTATION", "OLLAMA_HOST", "TZ", "LD_LIBRARY_PATH"],
)  # fmt: skip
def test_conventional_names(name: str) -> None:
    assert is_conventional(name)


def test_the_variables_that_an_agent_names_are_found_in_its_sources(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text("import os\nprint(os.environ['CURRENCY'], COLOUR)\n")
    (tmp_path / "beside.py").write_text('RATE = os.getenv("RATE")\n')
    (tmp_path / "broken.py").write_bytes(b"\xff\xfe'SHOP'")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere")
    names = frozenset({"CURRENCY", "RATE", "COLOUR", "OTHER", "SHOP"})
    assert names_in(str(agent), names) == {"CURRENCY", "RATE", "SHOP"}


def test_a_directory_that_was_removed_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert ProcessEnvironment.of_this_process().directory == "a removed directory"
