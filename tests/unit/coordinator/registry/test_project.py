"""Project files: what is read, and the error of each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronicle.errors import InvalidInput, NotFound
from coordinator.registry.project import load_project
from coordinator.registry.project_file import find_project, url_of_project
from coordinator.registry.resolve import resolve

AGENTS = 'agents = ["bot.py:Bot"]\n'


def written(directory: Path, text: str, name: str = "podium.toml") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def test_a_project_has_agents_configuration_environment_and_settings(tmp_path: Path) -> None:
    written(tmp_path, "API_KEY=secret\n", ".env")
    file = written(
        tmp_path,
        """
        agents = ["bot.py:Bot", "pkg.helpers:Helper"]
        env_file = ".env"
        [config.bot]
        model = "small"
        limits = { tokens = 5, ratio = 0.5 }
        names = ["a", "b"]
        [settings]
        home = "data"
        warm_hosts = 2
        presentation = "dir"
        lease_ttl_s = 3
        """,
    )
    project = load_project(file)
    assert project.file == file
    assert project.directory == tmp_path
    assert project.agents == ("bot.py:Bot", "pkg.helpers:Helper")
    assert project.config == {"bot": {"model": "small", "limits": {"tokens": 5, "ratio": 0.5}, "names": ["a", "b"]}}
    assert project.home == tmp_path / "data"
    assert project.env_file == tmp_path / ".env"
    assert project.variables == {
        "API_KEY": "secret",
        "PODIUM_WARM_HOSTS": "2",
        "PODIUM_PRESENTATION": "dir",
        "PODIUM_LEASE_TTL_S": "3",
    }


def test_what_is_left_out_has_a_default(tmp_path: Path) -> None:
    project = load_project(written(tmp_path, AGENTS))
    assert (project.config, project.env_file, project.variables) == ({}, None, {})
    assert project.home == tmp_path / ".podium"


def test_a_project_whose_agents_are_deployed_names_none(tmp_path: Path) -> None:
    project = load_project(written(tmp_path, "agents = []"))
    assert project.agents == ()
    assert resolve(project).agents == ()


def test_pyproject_has_the_same_in_a_table(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\n[tool.podium]\nagents = ["bot.py:Bot"]\n[tool.podium.config.bot]\nmodel = "small"\n'
    project = load_project(written(tmp_path, text, "pyproject.toml"))
    assert (project.agents, project.config) == (("bot.py:Bot",), {"bot": {"model": "small"}})


def test_the_nearest_file_upwards_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    outer = written(tmp_path, AGENTS)
    written(deep, '[project]\nname = "without podium"\n', "pyproject.toml")
    assert find_project(deep) == outer
    inner = written(tmp_path / "a", "[tool.podium]\n" + AGENTS, "pyproject.toml")
    assert find_project(deep) == inner
    monkeypatch.chdir(deep)
    assert load_project().file == inner


def test_a_pyproject_that_is_not_valid_matters_only_if_it_seems_to_have_the_table(tmp_path: Path) -> None:
    file = written(tmp_path, "[project\n", "pyproject.toml")
    assert find_project(tmp_path) is None
    file.write_text("[project\n[tool.podium]\n", encoding="utf-8")
    assert find_project(tmp_path) == file
    with pytest.raises(InvalidInput, match="pyproject.toml is not valid TOML"):
        load_project(file)


def test_two_files_in_one_directory_are_an_error(tmp_path: Path) -> None:
    written(tmp_path, AGENTS)
    written(tmp_path, "[tool.podium]\n" + AGENTS, "pyproject.toml")
    with pytest.raises(InvalidInput, match=r"has podium.toml and a \[tool.podium\] in pyproject.toml; remove one"):
        find_project(tmp_path)


def test_no_file_is_an_error_that_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=r"no podium.toml in .*; podium new NAME makes a project"):
        load_project()
    with pytest.raises(NotFound, match="no file .*other.toml"):
        load_project(Path("other.toml"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("agents = [", "is not valid TOML"),
        (AGENTS + "[agents.bot.config]\nmodel = 1", "the configuration of agents belongs into [config.TYPE]"),
        (
            AGENTS + "agent = 1",
            "no such key; the keys are agents, blobs, config, env_file, journal, models, requirements, settings, ten",
        ),
        ("", "agents: it is missing; name the agent classes"),
        ('agents = "bot.py:Bot"', "agents: it is text; write a list"),
        ("agents = [1]", "agents[0]: it is a number; write"),
        ('agents = ["b.py:B", "b.py:B"]', "agents[1]: 'b.py:B' is named twice"),
        (AGENTS + "config = 1", "config: it is a number; write a table: [config.TYPE]"),
        (AGENTS + "[config]\nbot = 1", "config.bot: it is a number; write a table [config.TYPE] for each type"),
        (AGENTS + "[config.bot]\nwhen = 2026-01-01", "config.bot.when: a date is not JSON"),
        (AGENTS + "[config.bot]\nrate = [0.5, nan]", "config.bot.rate.1: JSON cannot hold nan"),
        (AGENTS + "env_file = true", "env_file: it is a boolean; write the path of a file"),
        (AGENTS + 'env_file = ""', "env_file: it is empty; write the path of a file"),
        (AGENTS + "[tenants.ACME.quota]\nagents = 1", "tenants.ACME: tenant 'ACME' cannot be used"),
        (AGENTS + "[tenants.acme]\ncolour = 1", "tenants.acme: write a table [tenants.NAME.quota]"),
        (AGENTS + "[tenants.acme.quota]\ncats = 1", "tenants.acme.quota.cats: there is no such quota; the quotas are"),
        (AGENTS + "[tenants.acme.quota]\nagents = -1", "tenants.acme.quota.agents: -1 is not a whole number"),
        (AGENTS + "[tenants.acme.quota]\nagents = true", "tenants.acme.quota.agents: True is not a whole number"),
        (AGENTS + 'env_file = "gone"', "gone; create it, with lines NAME=value, or remove the key"),
        (AGENTS + "settings = []", "settings: it is a list; write a table: [settings]"),
        (AGENTS + "[settings]\nwarm = 1", "settings.warm: there is no such setting; the settings are autoscaler"),
        (AGENTS + '[settings]\nwarm_hosts = "2"', "settings.warm_hosts: write a number, without quotes"),
        (AGENTS + "[settings]\nwarm_hosts = true", "settings.warm_hosts: write a number, without quotes"),
        (
            AGENTS + "[settings]\nwarm_hosts = 1.5",
            "settings.warm_hosts: 1.5 cannot be used: input should be a valid int",
        ),
        (AGENTS + "[settings]\nwarm_hosts = -1", "settings.warm_hosts: -1 cannot be used: input should be greater"),
        (AGENTS + "[settings]\npresentation = 1", "settings.presentation: write one of 'auto', 'fuse', 'dir'"),
        (AGENTS + '[settings]\npresentation = "mount"', "settings.presentation: 'mount' cannot be used"),
        (AGENTS + "journal = 1", "journal: write a URL, in quotes"),
        (AGENTS + 'journal = "postgresql://u:hidden@db/podium"', "journal: it has a password, and this file is read"),
        (AGENTS + 'journal = "postgresql://u@db/podium?password=hidden"', "URL with it in PODIUM_JOURNAL_URL, or"),
        (AGENTS + 'blobs = "s3://key:hidden@bucket"', "blobs: it has a password, and this file is read"),
        (AGENTS + '[settings]\njournal_url = "postgresql://db"', 'settings.journal_url: write journal = "URL" above'),
        (AGENTS + "[settings]\nhome = 1", "settings.home: write text, in quotes"),
        (AGENTS + '[settings]\nworkspaces = "here"', "settings.workspaces: 'here' cannot be used"),
    ],
)
def test_each_mistake_is_named_with_file_and_key(tmp_path: Path, text: str, problem: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidInput) as refused:
        load_project(file)
    assert str(file) in str(refused.value)
    assert problem in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_keys_of_pyproject_are_named_with_their_table(tmp_path: Path) -> None:
    file = written(tmp_path, "[tool.podium]\nagents = 1\n", "pyproject.toml")
    with pytest.raises(InvalidInput, match=r"pyproject.toml: tool.podium.agents: it is a number"):
        load_project(file)
    file.write_text('[project]\nname = "x"\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"has no table \[tool.podium\]"):
        load_project(file)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "podium.toml"
    file.write_bytes(b"agents = ['\xff']")
    with pytest.raises(InvalidInput, match="is not UTF-8 text: byte 11"):
        load_project(file)


def test_a_setting_is_valid_whatever_the_environment_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_WARM_HOSTS", "many")
    project = load_project(written(tmp_path, AGENTS + "[settings]\ninbox_limit = 5\nwarm_hosts = 3"))
    assert project.variables == {"PODIUM_INBOX_LIMIT": "5", "PODIUM_WARM_HOSTS": "3"}


def test_the_home_is_no_matter_of_the_environment_file(tmp_path: Path) -> None:
    written(tmp_path, "PODIUM_HOME=elsewhere", ".env")
    with pytest.raises(InvalidInput, match=r"sets PODIUM_HOME; write home = .DIR. into \[settings\]"):
        load_project(written(tmp_path, AGENTS + 'env_file = ".env"'))


def test_where_a_new_home_keeps_its_journal_and_blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert url_of_project("journal") == ""
    file = written(tmp_path, AGENTS + 'journal = "postgresql://u@db/podium"')
    assert load_project(file).variables == {}
    assert (url_of_project("journal"), url_of_project("blobs")) == ("postgresql://u@db/podium", "")
    other = written(tmp_path, '[tool.podium]\nblobs = "s3://bucket"', "other.toml").rename(tmp_path / "pyproject.toml")
    assert url_of_project("blobs", other) == "s3://bucket"
    file.write_text('journal = "postgresql://u:hidden@db/podium"')
    with pytest.raises(InvalidInput, match=r"podium.toml: journal: it has a password") as refused:
        url_of_project("journal", file)
    assert "hidden" not in str(refused.value)


def test_quotas_of_tenants(tmp_path: Path) -> None:
    text = AGENTS + "[tenants.acme.quota]\nagents = 3\nmessages_per_minute = 60\n[tenants.zeta.quota]\n"
    assert load_project(written(tmp_path, text)).quotas == {
        "acme": {"agents": 3, "messages_per_minute": 60},
        "zeta": {},
    }
