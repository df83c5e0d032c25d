"""The pid namespace of a pod whose containers share one: `shareProcessNamespace`, and CRI's default.

A pid namespace lives and dies with its first process. So there is a pause process, `podwire-shim pause`: it is started
for the first container that asks for it, and not for other pods. It is alone in a cgroup with the sandbox's id, beside
those of the containers: a process in there is the pause process, also one that an earlier runtime started. Killing the
group ends it and all processes of the namespace. Containers join the namespace by the path at which it is pinned.

| a crash comes after | a restart or the next container finds | and does |
|---|---|---|
| the cgroup is made | an empty group | uses it |
| the pause process is started | a process in the group, no pin | kills it, starts another |
| the namespace is pinned | both | uses it |
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.linux.cgroups.groups import KernelCgroups
from podwire.linux.errors import LinuxError
from podwire.linux.proc import processes
from podwire.linux.proc.namespaces import KernelNamespaces
from podwire.protocols.grpc_status import Internal
from podwire.runtime.sandboxes.kernel import PREFIX
from podwire.runtime.spec.build import Pod


@dataclass(frozen=True, slots=True)
class PodPids:
    """Starts and ends pause processes. Blocking."""

    shim: Path
    cgroups: KernelCgroups
    namespaces: KernelNamespaces
    seconds: float
    """For the start of a pause process."""
    run: Callable[..., processes.Finished] = processes.run

    def ensure(self, pod: Pod, group: str) -> None:
        """Starts the pause process of a pod, unless it runs. Raises Internal."""
        name = PREFIX + pod.id
        is_pinned = any(pinned.name == name and pinned.inode for pinned in self.namespaces.list())
        if is_pinned and self.cgroups.pids(group):
            return
        try:
            self.cgroups.kill(group)
            self.namespaces.remove(name)
            self.cgroups.create(group)
            directories = [str(Path(file).parent) for file in self.cgroups.procs_files(group)]
            joined = [path or "-" for path in (pod.user, pod.network, pod.ipc)]
            done = self.run([str(self.shim), "pause", pod.id, *joined, *directories], env={}, deadline=self.seconds)
            if done.code:
                raise Internal(f"the pod's pid namespace: {done.stderr.decode('utf-8', 'replace').strip()}")
            self.namespaces.create(name, int(done.stdout))
        except LinuxError as error:
            raise Internal(f"the pod's pid namespace: {error}") from error

    def end(self, sandbox_id: str, group: str) -> None:
        """Ends the pause process and with it all processes of the namespace. Idempotent."""
        if not any(Path(tree.mount, group).exists() for tree in self.cgroups.trees):
            return
        self.cgroups.end(group)
        self.namespaces.remove(PREFIX + sandbox_id)
