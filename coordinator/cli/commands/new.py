"""``podium new``: making a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from chronicle.cli_kit.terminal import say, write_json, write_line
from coordinator.cli.options import JsonOption, command

__all__ = ["new"]


@command
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The project's name, and that of its directory.")],
    *,
    json: JsonOption = False,
) -> None:
    """Make a project: a directory with an agent, its test and podium.toml.

    The directory is made in the working directory; one that exists must be empty.
    """
    import os  # noqa: PLC0415  slow to import, and --help needs none
    import shutil  # noqa: PLC0415

    from chronicle.errors import InvalidInput  # noqa: PLC0415
    from coordinator.registry.template import ProjectName, project_files  # noqa: PLC0415

    project = ProjectName(name)
    target = Path(name)
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise InvalidInput(f"{target} exists and is no directory; take another name")
    if target.is_dir() and any(target.iterdir()):
        raise InvalidInput(f"the directory {target} exists and is not empty; take another name")
    files = project_files(project)
    draft = Path(f".{name}.{os.getpid()}")
    draft.mkdir()
    try:
        for path, text in files.items():
            (draft / path).parent.mkdir(exist_ok=True)
            (draft / path).write_text(text, encoding="utf-8")
        draft.rename(target)  # all of it or nothing; an empty directory is replaced
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    if json:
        write_json({"project": str(target.absolute()), "agent_type": project.agent_type, "files": sorted(files)})
        return
    for path in sorted(files):
        write_line(str(target / path))
    say(f"made {name}; next: cd {name} && podium run agent.py:{project.class_name}")
