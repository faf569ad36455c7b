"""Running something where it cannot write: as another user, for root may write anywhere."""

from __future__ import annotations

import os
import signal
import tempfile
import traceback
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["cannot_write", "listing", "without_write_access"]

_NOBODY = 65534
_DEADLINE_S = 60


def without_write_access(path: Path, do: Callable[[], None]) -> None:
    """Call something in a process that can read a directory and write nothing in it; its errors are failures here."""
    with cannot_write(path), tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                signal.alarm(_DEADLINE_S)
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(_NOBODY, _NOBODY, _NOBODY)
                    os.setresuid(_NOBODY, _NOBODY, _NOBODY)
                do()
                code = 0
            except BaseException:  # noqa: BLE001 - nothing may get to the test's own process
                traceback.print_exc(file=said)
                said.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        said.seek(0)
        assert status == 0, said.read()


@contextmanager
def cannot_write(path: Path) -> Iterator[None]:
    """Let anybody read what is below a directory, and nobody write, for a while."""
    above = [directory for directory in path.parents if not directory.stat().st_mode & 0o001]
    changed = {item: item.stat().st_mode for item in (path, *path.rglob("*"), *above) if not item.is_symlink()}
    for item, mode in changed.items():
        if item in above:
            item.chmod(mode | 0o011)
        else:
            item.chmod(0o555 if item.is_dir() else 0o444)
    try:
        yield
    finally:
        for item, mode in changed.items():
            with suppress(FileNotFoundError):  # removed meanwhile by who was allowed to
                item.chmod(mode)


def listing(path: Path) -> dict[str, tuple[int, int]]:
    """Return the size and time of change of everything below a directory, to see that nothing became of it."""
    found = [path, *path.rglob("*")]
    return {str(item.relative_to(path)): (item.lstat().st_size, item.lstat().st_mtime_ns) for item in found}
