"""The project's code as a bundle, and the registry of the bundle that is current."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chronicle.errors import InvalidInput
from coordinator.registry.named_imports import named_imports, search_path
from coordinator.registry.registry import RegisteredAgent, Registry
from coordinator.registry.resolve import resolve
from podium.address import Address
from podium.agent.inspect import inspect_agent
from podium.code.deploys import current_deploy
from podium.code.manifest import read_manifest
from podium.code.packing import pack

if TYPE_CHECKING:
    from chronicle.blobs.port import BlobReader, BlobStore
    from chronicle.ids import BlobId
    from chronicle.journal.port import JournalStore
    from coordinator.registry.project import Project
    from podium.agent.inspect import AgentInfo
    from podium.code.manifest import Manifest

__all__ = ["check_deployable", "deployed_registry", "pack_project"]


def pack_project(project: Project, blobs: BlobStore) -> Manifest:
    """Put the code of a project into a blob store as a bundle: its file, and the sources that its agents import.

    These are the files that an import of the agents' files imports of their directories, and those that import
    statements name. Other files, such as data, are not packed.

    Raises:
        AgentLoadError, InvalidInput: a class or a file cannot be used; the message names it.
        Unavailable: the blob store could not be reached.
    """
    if not project.agents:
        raise InvalidInput(
            f'{project.file}: agents: it is empty; name what is to be deployed: agents = ["file.py:Class"]'
        )
    sources: set[Path] = set()

    def inspect(spec: str, directory: Path) -> AgentInfo:
        info = inspect_agent(spec, directory, project.variables, project.models.key_variables)
        sources.update(map(Path, info.sources))  # of several threads, which each add in one step
        return info

    agents = resolve(project, inspect).agents
    roots = {root for agent in agents for root in search_path(Path(agent.file))}
    paths = {project.file, *named_imports(sources, roots)}
    classes = [_in_bundle(agent, project.directory).to_wire() for agent in agents]
    return pack(blobs, project.directory, paths, classes, project.requirements)


def deployed_registry(store: JournalStore, blobs: BlobReader) -> Registry | None:
    """Return the agent classes of the current deploy; ``None`` if there is none.

    Raises:
        NotFound, Corrupt: its bundle is damaged.
        UnsupportedFormat: a newer version packed it.
        Unavailable: a store could not be reached.
    """
    deploy = current_deploy(store)
    if deploy is None or deploy.bundle is None:
        return None
    return _registry_of(read_manifest(blobs, deploy.bundle), deploy.bundle)


def check_deployable(manifest: Manifest) -> None:
    """Check that a service can know the classes of a bundle, whoever packed it.

    Raises:
        InvalidInput: it cannot.
    """
    for agent in _registry_of(manifest, manifest.bundle).agents:
        Address(agent.agent_type, "any")
        if agent.file not in manifest.files:
            raise InvalidInput(f"the code bundle has no file {agent.file}, of the agent class {agent.class_name}")


def _registry_of(manifest: Manifest, bundle: BlobId) -> Registry:
    return Registry(replace(RegisteredAgent.from_wire(each), bundle=bundle) for each in manifest.classes)


def _in_bundle(agent: RegisteredAgent, directory: Path) -> RegisteredAgent:
    """Return a class with the path of its file in the bundle, and without paths of this machine."""
    file = Path(agent.file)
    if not file.is_relative_to(directory):
        raise InvalidInput(
            f"{agent.file} is outside of {directory}, the directory of the project: a bundle has files of that "
            "directory only"
        )
    spec = "" if agent.spec.startswith(("/", "~")) else agent.spec
    interface = {key: value for key, value in agent.interface.items() if key != "sources"}
    return replace(agent, file=file.relative_to(directory).as_posix(), spec=spec, interface=interface)
