"""``make demo``: watch an agent review a real package, go to sleep, wake up, and find every version of its report.

It drives the ``podium`` command as you would, in a fresh home (``.demo/home``), and checks each step as it goes: it
ends with an error when a step did not do what it says.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).resolve().parent.parent
WORK = Path(".demo")
HOME = WORK / "home"
PODIUM = Path(sys.executable).with_name("podium")
PACKAGE, VERSION = "packaging", "26.0"
SPEC = "examples/reviewer.py:ReviewerAgent"
AGENT = f"reviewer/{PACKAGE}"
QUESTIONS = ("5 longest functions", "TODOs", "imports of re")
COMMAND_S = 180
"""Longest that one command may take."""
END_S = 60
"""Longest that an end may take: going to zero after the reviewer's 10 s without a message, or the service's own."""


def main() -> None:
    """Run the demo."""
    os.chdir(ROOT)
    shutil.rmtree(HOME, ignore_errors=True)
    archive = download()
    with another_terminal():
        work(archive)
        sleep()
        wake()
    look_back()


# -- the steps ---------------------------------------------------------------------------------------------------------


def download() -> Path:
    """Fetch the source distribution of a small well-known package, once."""
    archive = WORK / f"{PACKAGE}-{VERSION}.tar.gz"
    if not archive.exists():
        say(f"Downloading the source of {PACKAGE} {VERSION}")
        WORK.mkdir(exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "-qq", "--disable-pip-version-check", "--no-deps"]
        fetched = subprocess.run([*pip, "--no-binary", PACKAGE, "--dest", WORK, f"{PACKAGE}=={VERSION}"], check=False)
        check(fetched.returncode == 0, "pip could not download it; is a package index reachable?")
    return archive


@contextlib.contextmanager
def another_terminal() -> Generator[None]:
    """Keep a chat with another agent open: while a client is connected, the service of the home stays up."""
    say("A second terminal opens a chat with another agent and leaves it open: the service of this home stays up")
    command = [str(PODIUM), "run", "examples/hello.py:HelloAgent", "--key", "door", "--home", str(HOME)]
    print("   $", shlex.join(["podium", *command[1:]]), flush=True)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as terminal:
        assert terminal.stdin is not None
        assert terminal.stderr is not None
        try:
            connected = False
            for line in terminal.stderr:  # what it waits for, and at last where the agent is
                print(line, end="", flush=True)
                connected = line.startswith("hello/door")
                if connected:
                    break
            check(connected, "the chat should connect")
            yield
        finally:
            terminal.stdin.close()  # Ctrl-D
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.wait(timeout=30)
            terminal.kill()


def work(archive: Path) -> None:
    """Four messages, and what each left in the journal."""
    say("Four messages to a reviewer. Each is one turn: replies, state and files in one commit")
    check("Python files of" in ask(f"review {archive}"), "the first reply should say what the package is")
    for question in QUESTIONS:
        check("src/packaging/" in ask(question), "the answer should name files of the package")

    say("What each turn changed in its state (podium log: the RFC 6902 patch of each turn.committed)")
    turns = [event for event in events() if event["type"] == "turn.committed" and event["payload"]["consumed"]]
    check(len(turns) == 4, f"four messages should be four turns, not {len(turns)}")
    for event in turns:
        print(f"   turn {event['turn']}")
        for change in event["payload"]["state"]["patch"]:
            value = json.dumps(change["value"], ensure_ascii=False) if "value" in change else ""
            print(f"      {change['op']:<8}{change['path']}  {shorten(value)}")
    state = json.loads(run("state", AGENT, "--json", show=False))["state"]
    check(len(state["findings"]) == len(QUESTIONS), "the state should hold the answers")


def sleep() -> None:
    """It goes to zero, and nothing of it is left running."""
    say("Nobody writes to it, so after 10 seconds it goes to zero")
    mounted, running = mounts(), processes()
    check(bool(running), "it should still be awake")
    print(f"   awake: process {', '.join(map(str, running))}, workspace mounted {len(mounted)} time(s)", flush=True)
    started = time.monotonic()
    wait_for(lambda: status() == "asleep" and not processes() and not mounts(), END_S, "it should go to zero")
    print(f"   asleep after {time.monotonic() - started:.0f} s: no process and no mount of it is left")
    run("ps")


def wake() -> None:
    """The next message finds everything where it was."""
    say("The next message wakes it, with its state and its files")
    check("Imports of re" in ask("report"), "after waking, it should know what it had found")


def look_back() -> None:
    """Old versions and the proof, with nothing running."""
    say("Every version of its report is kept. The terminals are closed, and nothing runs any more")
    wait_for(lambda: not home_status()["service"], END_S, "the service should end with its last client")
    check(not mounts(), "no mount should be left")
    versions = json.loads(run("history", AGENT, "report.md", "--json", show=False))
    check(len(versions) == 1 + len(QUESTIONS), f"{len(versions)} versions of report.md, one a turn was expected")
    run("history", AGENT, "report.md")
    first = run("cat", AGENT, "report.md@1")
    check(first.startswith("# Review of") and "## " not in first, "its first version should have no findings yet")

    say("All of it, read back and checked against its hashes")
    run("verify")

    say("Now try")
    podium = os.path.relpath(PODIUM)
    print(f"   {podium} run {SPEC} --key {PACKAGE} --home {HOME}")
    print(f"   {podium} log {AGENT} --home {HOME}")
    print(f"   {podium} run examples/hello.py:HelloAgent --key you")


# -- the podium command ------------------------------------------------------------------------------------------------


def run(*arguments: str, show: bool = True) -> str:
    """Run one ``podium`` command on the demo's home; return, and by default show as it comes, what it prints."""
    command = [*arguments, "--home", str(HOME)]
    if show:
        print("   $", shlex.join(["podium", *command]), flush=True)
    heard: list[bytes] = []
    deadline = time.monotonic() + COMMAND_S
    with subprocess.Popen([PODIUM, *command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        output = process.stdout.fileno()
        while piece := os.read(output, 65536):
            heard.append(piece)
            if show:
                sys.stdout.buffer.write(piece)
                sys.stdout.flush()
            if time.monotonic() > deadline:
                process.kill()
    check(process.returncode == 0, f"podium {shlex.join(command)} ended with exit code {process.returncode}")
    return b"".join(heard).decode()


def ask(text: str) -> str:
    """Send the reviewer a message; return its reply, shown while it is produced."""
    return run("run", SPEC, "--key", PACKAGE, "--message", text)


def events() -> list[dict[str, Any]]:
    """The reviewer's journal."""
    return [json.loads(line) for line in run("log", AGENT, "--json", "--limit", "10000", show=False).splitlines()]


def home_status() -> dict[str, Any]:
    """What ``podium ps`` says."""
    found: dict[str, Any] = json.loads(run("ps", "--json", show=False))
    return found


def status() -> str:
    """``awake`` or ``asleep``."""
    return next(str(agent["status"]) for agent in home_status()["agents"] if agent["agent"] == AGENT)


# -- what runs ---------------------------------------------------------------------------------------------------------


def mounts() -> list[str]:
    """What is mounted for the home: the reviewer is the only agent of it that is ever awake here."""
    places = Path("/tmp") / f"podium-{(HOME / 'id').read_text(encoding='utf-8').strip()}"  # noqa: S108  as podium does
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [point for point in (line.split()[1] for line in lines) if Path(point).is_relative_to(places)]


def processes() -> list[int]:
    """The reviewer's processes: an agent's host prints to that agent's log."""
    log = str(HOME.resolve() / "logs" / AGENT.replace("/", "-"))
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
                if str((entry / "fd" / "1").readlink()).startswith(log):
                    found.append(int(entry.name))
    return found


def wait_for(what: Callable[[], bool], limit_s: float, otherwise: str) -> None:
    """Wait until something is so; end the demo when it takes too long."""
    deadline = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > deadline:
            fail(f"{otherwise}, and did not within {limit_s:.0f} s")
        time.sleep(0.5)


# -- talk --------------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Begin a step."""
    print(f"\n== {text}", flush=True)


def shorten(text: str) -> str:
    """One line of at most 100 characters."""
    return text if len(text) <= 100 else text[:97] + "..."


def check(good: bool, otherwise: str) -> None:
    """End the demo when something is not as it should be."""
    if not good:
        fail(otherwise)


def fail(why: str) -> NoReturn:
    """End the demo."""
    sys.exit(f"\ndemo: {why}")


if __name__ == "__main__":
    main()
