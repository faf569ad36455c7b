"""The memory that processes may use: the smallest limit of the machine and of the cgroups around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coordinator.memory_limit import memory_limit

if TYPE_CHECKING:
    from pathlib import Path


def make(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_a_cgroup_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) > 64 << 20
    unlimited = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}
    assert memory_limit(make(tmp_path, unlimited)) == memory_limit(tmp_path / "nothing")


@pytest.mark.parametrize(
    "files",
    [
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000\n"},
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/memory.max": "1000\n",
        },
        {
            "proc/self/cgroup": "5:cpu,memory:/a\n1:name=systemd:/b\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    ],
)
def test_the_smallest_limit_of_a_cgroup_holds(tmp_path: Path, files: dict[str, str]) -> None:
    assert memory_limit(make(tmp_path, files)) == 1000
