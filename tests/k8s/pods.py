"""The rendered pods as machines of namespaces: their commands, variables, probes and hooks, with all that these start.

A pod is a machine of `tests.cluster.machines`, and its volumes are directories of it. A container has mounts of its
own, the user, the group and the rights that the chart gives it, and, unless its pod shares them, processes of its own.
`Pod` does what a kubelet does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.k8s import rendering
from tests.users import INTERPRETER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.machines import Machine, Started

__all__ = ["Pod"]

_END_S: Final = 20.0
"""How long a container has to end after its SIGTERM."""
_BACK_OFF_S: Final = 5.0
"""From one start of a container to the next one; a kubelet takes 10 s, and then more."""
_CONTAINER: Final = f"""
mount --make-rprivate /
{INTERPRETER}
mounts=$1 root=$2; shift 2
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
if [ -e /dev/fuse ]; then
    mknod -m 666 /dev/shm/fuse c 10 229
    mount --bind /dev/shm/fuse /dev/fuse
fi
for each in $mounts; do
    IFS=: read -r volume path mode <<<"$each"
    case $path in /tmp*) continue;; esac  # the machine's stands for it
    mkdir -p "$path"
    mount --bind "$volume" "$path"
    [ "$mode" = rw ] || mount -o bind,remount,ro "$path"
done
if [ "$root" = read-only ]; then
    for each in /run /var/lib /; do mount -o bind,remount,ro "$each"; done
    case " $mounts" in *:/tmp:*) ;; *) mount -o bind,remount,ro /tmp;; esac
fi
exec "$@"
"""
"""Makes the mounts of a container, in bash as root; then it is the command after its arguments."""


class Pod:
    """A pod of the chart on a machine.

    Args:
        name: of the pod.
        machine: which is the pod.
        rendered: as the chart, and KubeRay, have it.
        secrets: the values of Secrets, by their names and keys.
        files: the texts of files in its volumes, by volumes and names.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        rendered: rendering.Pod,
        secrets: Mapping[tuple[str, str], str],
        files: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.name: Final = name
        self.machine: Final = machine
        self.rendered: Final = rendered
        self.started: dict[str, Started] = {}
        """Its containers that have been started."""
        self._secrets = secrets
        self._lives = threading.RLock()
        """Held while something runs in it that does not outlive it."""
        self._started_s: dict[str, float] = {}
        self._up: set[str] = set()
        """The sidecars whose startup probe has passed."""
        self._volumes = machine.directory / "volumes"
        group = rendered.spec["securityContext"]["fsGroup"]
        for volume in rendered.spec["volumes"]:
            (directory := self._volumes / volume["name"]).mkdir(parents=True)
            os.chown(directory, 0, group)
            directory.chmod(0o2777)  # as the kubelet makes an emptyDir
            for file, text in files.get(volume["name"], {}).items():
                (path := directory / file).write_text(text)
                os.chown(path, 0, group)
                path.chmod(volume.get("projected", {}).get("defaultMode", 0o644))

    # -- what it is -------------------------------------------------------------------------------------------------

    def container(self, name: str) -> dict[str, Any]:
        return next(each for each in self.rendered.containers if each["name"] == name)

    def environment(self, name: str) -> dict[str, str]:
        """The variables of a container."""
        found: dict[str, str] = {}
        for variable, entry in rendering.variables(self.container(name)).items():
            source = entry.get("valueFrom", {})
            if "fieldRef" in source:
                fields = {
                    "status.podIP": self.machine.address,
                    "metadata.name": self.name,
                    "metadata.labels['ray.io/cluster']": self.rendered.owner.split("/")[1],  # KubeRay writes it
                }
                found[variable] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                found[variable] = self._secrets[source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]]
            else:
                found[variable] = self._here(entry["value"])
        return found

    def _here(self, text: str) -> str:
        """A text with the path and the address that it stands for here."""
        return text.replace("/etc/podium", "/run/etc").replace("$(POD_IP)", self.machine.address)

    @property
    def main(self) -> list[str]:
        """The containers that are no sidecars."""
        return [each["name"] for each in self.rendered.spec["containers"]]

    def status(self) -> dict[str, Any]:
        """What a kubelet tells of it."""
        states = [
            {"name": name, "state": {"running" if self.runs(name) else "waiting": {}}, "resources": {}}
            for name in self.main
        ]
        return {"phase": "Running", "podIP": self.machine.address, "containerStatuses": states}

    def runs(self, name: str) -> bool:
        """Whether a container has been started and has not ended."""
        return name in self.started and self.started[name].runs()

    def passes(self, name: str, probe: str) -> bool:
        """Whether a probe of a container passes now."""
        found = self.container(name)[f"{probe}Probe"]
        if "httpGet" in found:
            ports = {port["name"]: port["containerPort"] for port in self.container(name)["ports"]}
            url = f"http://127.0.0.1:{ports[found['httpGet']['port']]}{found['httpGet']['path']}"
            with self._lives, self.machine.network():
                return _answers(url)
        with self._lives:
            return self.machine.run(*found["exec"]["command"], check=False).returncode == 0

    def has_failed(self) -> bool:
        """Whether the container of Ray has ended, which is not started again in this pod."""
        ray = self.main[0]
        return ray in self.started and not self.runs(ray)

    def replace(self) -> None:
        """Be another pod, on the same machine."""
        with self._lives:
            self.machine.lose_power()
            self.machine.boot()
            for each in (self.started, self._started_s, self._up):
                each.clear()

    # -- what a kubelet does ----------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Start what is to be started now: the next container, or again one that has ended and is to run always."""
        sidecars = [each["name"] for each in self.rendered.spec.get("initContainers", ())]
        again = [*sidecars, *(self.main if "restartPolicy" not in self.rendered.spec else ())]
        for name in (*sidecars, *self.main):
            if name not in self.started or (name in again and self._may_start_again(name)):
                self.start(name)
            if name in sidecars and "startupProbe" in self.container(name) and name not in self._up:
                if not self.passes(name, "startup"):
                    return
                self._up.add(name)

    def _may_start_again(self, name: str) -> bool:
        return not self.runs(name) and time.monotonic() - self._started_s[name] > _BACK_OFF_S

    def start(self, name: str) -> None:
        """Start a container."""
        each = self.container(name)
        own = [] if self._shares_processes else ["--pid", "--fork", "--mount-proc"]
        mounts = [
            f"{self._volumes / mount['name']}:{self._here(mount['mountPath'])}:{mode}"
            for mount in each["volumeMounts"]
            for mode in ("ro" if mount.get("readOnly") else "rw",)
        ]
        self._started_s[name] = time.monotonic()
        self.started[name] = self.machine.start(
            *("unshare", "--mount", *own, "--kill-child", "bash", "-c", _CONTAINER, name, sys.base_prefix),
            " ".join(mounts),
            "read-only" if each["securityContext"].get("readOnlyRootFilesystem") else "writable",
            *self._become(name),
            *map(self._here, [*each["command"], *each.get("args", ())]),
            log=f"{name}.log",
            environment=self.environment(name),
        )

    def end(self) -> None:
        """End it as a kubelet does: all ``preStop`` hooks begin at once, then the containers have a SIGTERM.

        The sidecar ends by its hook, for which the hooks of the others wait.
        """
        hooks = [self._begin_hook(name) for name in self.started if self.runs(name) and self._hook(name)]
        for hook in hooks:
            hook.wait(float(self.rendered.spec["terminationGracePeriodSeconds"]))
        for name in self.main:
            if self.runs(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._first(name), signal.SIGTERM)
        for name in self.main:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.started[name].wait(_END_S)

    def _begin_hook(self, name: str) -> Started:
        command = [*self._inside(name), *self._hook(name)]
        return self.machine.start(*command, log=f"{name}.log", environment=self.environment(name))

    def _hook(self, name: str) -> list[str]:
        return list(self.container(name).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ()))

    def _inside(self, name: str) -> list[str]:
        """The beginning of a command that is run in a container that runs."""
        own = [] if self._shares_processes else ["--pid"]
        return ["nsenter", "-t", self._inner(name), "--mount", *own, *self._become(name)]

    def _become(self, name: str) -> list[str]:
        """The beginning of a command of root that goes on as a container's user, with its group and its rights."""
        security = {**self.rendered.spec["securityContext"], **self.container(name)["securityContext"]}
        added = [f"+{capability.lower()}" for capability in security["capabilities"].get("add", ())]
        return [
            "setpriv",
            f"--reuid={security['runAsUser']}",
            f"--regid={security['runAsGroup']}",
            f"--groups={security['fsGroup']}",
            "--pdeathsig=KILL",  # another user has cleared that of unshare --kill-child
            "--inh-caps=-all",
            f"--bounding-set={','.join(['-all', *added])}",
            *([] if security["allowPrivilegeEscalation"] else ["--no-new-privs"]),
        ]

    @property
    def _shares_processes(self) -> bool:
        return bool(self.rendered.spec.get("shareProcessNamespace"))

    def _first(self, name: str) -> int:
        """The id, outside, of a container's first process."""
        pid = self.started[name].pid
        if self._shares_processes:
            return pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child)

    def _inner(self, name: str) -> str:
        """The id of a container's first process on its machine."""
        status = Path(f"/proc/{self._first(name)}/status").read_text().splitlines()
        (line,) = (line for line in status if line.startswith("NSpid:"))
        return line.split()[2]  # after that outside

    # -- what a user does -------------------------------------------------------------------------------------------

    def podium(self, name: str, *arguments: str) -> str:
        """Run the command in a container that runs, and return what it prints."""
        command = [*self._inside(name), "podium", *arguments]
        return self.machine.run(*command, environment=self.environment(name)).stdout


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
