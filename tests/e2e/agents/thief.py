"""An agent whose code tries to get at credentials of its home, and at agents of others."""

from __future__ import annotations

import gc
import json
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chronicle.errors import ChronicleError
from chronicle.journal.records import Commit, Head, NewMessage
from chronicle.journal.remote import remote_journal
from coordinator.store.links import COORDINATOR, StoreLink
from podium.agent import AgentContext, BaseAgent
from podium.errors import PodiumError

if TYPE_CHECKING:
    from collections.abc import Callable


class Thief(BaseAgent):
    """Answers with what each attempt gave."""

    agent_type = "thief"

    async def on_message(self, ctx: AgentContext[Any], message: dict[str, Any]) -> None:
        asked = json.loads(message["text"])
        secrets = [each[::-1] for each in asked["backwards"]]  # the message itself is in many places
        ctx.reply(
            {
                "own variables": [name for name, value in os.environ.items() if any(each in value for each in secrets)],
                "processes": readable(secrets),
                "files": [found for place in asked["directories"] for found in in_files(Path(place), secrets)],
                "database": database(asked["conninfo"]),
                "store": store_process(asked["other"]),
                "ray": actors(),
                "node": beside(Path(asked["node"]["run_dir"]), Path(asked["node"]["home"])) if "node" in asked else {},
            }
        )


def readable(secrets: list[str]) -> list[str]:
    """Return the other processes whose environment has a secret, or whose memory this one may read."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        if directory.name == str(os.getpid()):
            continue
        where = [name for name in ("environ", "cmdline") if _has(directory / name, secrets)]
        if _can_read_memory(directory):
            where.append("memory")
        if where:
            command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found.append(f"{', '.join(where)}: {command}")
    return found


def in_files(home: Path, secrets: list[str]) -> list[str]:
    """Return the files of a home, and of the directories of its sockets, that have a secret."""
    files = (path for path in home.rglob("*") if path.is_file())
    return [str(path) for path in files if _has(path, secrets)]


def database(conninfo: str) -> str:
    """Connect to the database as libpq finds its way."""
    import psycopg

    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError as error:
        return str(error)
    return "connected"


def store_process(other: dict[str, str]) -> dict[str, str]:
    """Use this host's own link to the store process for another agent's session, and other names than its own."""
    link = next(each for each in gc.get_objects() if isinstance(each, StoreLink))
    own = remote_journal(link.calls())
    coordinator = remote_journal(StoreLink(link.socket, COORDINATOR, link.token).calls())
    head = Head(other["branch"], 1, None, "0" * 64, 1)  # type: ignore[arg-type]
    attempts: dict[str, Callable[[], object]] = {
        "read": lambda: own.pending(other["session"]),  # type: ignore[arg-type]
        "read events": lambda: next(own.events(other["branch"])),  # type: ignore[arg-type]
        "read by name": lambda: own.session(*other["name"].split("@")),
        "commit": lambda: own.commit(Commit(other["session"], head, (), 1)),  # type: ignore[arg-type]
        "commit without a lease": lambda: own.commit(Commit(other["session"], head, (), None)),  # type: ignore[arg-type]
        "admit": lambda: own.admit(other["session"], NewMessage("msg_1", b"{}", 1)),  # type: ignore[arg-type]
        "take a lease": lambda: own.acquire_lease(other["session"], link.caller, 1, 1),  # type: ignore[arg-type]
        "list": own.sessions,
        "documents": lambda: link.calls().call("document", name="home"),
        "list blobs": lambda: link.calls().call("blob_ids"),
        "be the coordinator": coordinator.sessions,
    }
    said = {}
    for name, attempt in attempts.items():
        try:
            said[name] = f"got {attempt()!r}"
        except (ChronicleError, PodiumError) as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def beside(run_dir: Path, home: Path) -> dict[str, str]:
    """Try what `podium node`, of another user, has beside this process."""
    store, aside = run_dir / "store.sock", run_dir.with_name("aside")
    return attempted(
        {
            "connect": lambda: connect(store),
            "read the home": lambda: list(home.iterdir()),
            "write in the home": lambda: (home / "planted").write_text(""),
            "write beside the sockets": lambda: (run_dir / "planted").write_text(""),
            "remove the socket": store.unlink,
            "listen in its place": lambda: socket.socket(socket.AF_UNIX).bind(str(run_dir / "planted.sock")),
            "change its mode": lambda: store.chmod(0o666),
            "move the directory away": lambda: run_dir.rename(aside),
            "make another one": aside.mkdir,
        }
    )


def attempted(attempts: dict[str, Callable[[], object]]) -> dict[str, str]:
    """Return what came of attempts: ``refused: …`` if the kernel did."""
    said = {}
    for name, attempt in attempts.items():
        try:
            said[name] = f"got {attempt()!r}"
        except OSError as error:
            said[name] = f"refused: {error.strerror}"
    return said


def connect(path: Path) -> None:
    """Connect to a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def actors() -> list[str]:
    """Return the names of the actors of its home that it reaches by Ray."""
    import ray

    named = ray.util.list_named_actors(all_namespaces=True)
    return [each["name"] for each in named if ray.get_actor(each["name"], each["namespace"]) is not None]


def _has(path: Path, secrets: list[str]) -> bool:
    try:
        return any(secret.encode() in path.read_bytes() for secret in secrets)
    except OSError:
        return False


def _can_read_memory(directory: Path) -> bool:
    try:
        with (directory / "mem").open("rb"):
            return True
    except OSError:
        return False
