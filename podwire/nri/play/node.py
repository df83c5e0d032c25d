"""The simulated node: pods and containers as a runtime describes them to plugins; none of them runs."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from podwire.nri.play.script import ContainerScript, PodScript
from podwire.protocols.nri import nri_pb2 as pb
from podwire.protocols.nri.oci import adjusted_spec, container_of, resources_to

PID = 4_000_000
"""A pid that is larger than the default pid_max, so that it matches no process."""


class PlayedContainer:
    """One container and its config.json."""

    def __init__(self, name: str, pod: pb.PodSandbox, script: ContainerScript) -> None:
        self._script = script
        self.name = name
        self.pod_id = pod.id
        self.default = merged_over(default_spec(name, pod), script.spec)
        self.spec: dict[str, Any] = self.default
        self.state = pb.CONTAINER_UNKNOWN
        self.exists = False

    def described(self) -> pb.Container:
        known = pb.Container(
            id=identity(f"{self.pod_id}/{self.name}"), pod_sandbox_id=self.pod_id, name=self.name, state=self.state
        )
        known.image.name = "registry.example/app:v1"
        known.labels["io.kubernetes.container.name"] = self.name
        if self.state == pb.CONTAINER_RUNNING:
            known.pid, known.started_at = PID, time.time_ns()
        known.MergeFrom(self._script.known)
        return container_of(self.spec, known)

    def adjust(self, adjust: pb.ContainerAdjustment) -> None:
        """Raises BadAdjustment."""
        self.spec = adjusted_spec(self.default, adjust, cdi=_cdi)

    def update(self, resources: pb.LinuxResources) -> None:
        """Raises BadAdjustment."""
        new = merged_over(self.spec, {})
        resources_to(resources, new.setdefault("linux", {}).setdefault("resources", {}))
        self.spec = new


class PlayedPod:
    """One pod."""

    def __init__(self, name: str, script: PodScript) -> None:
        self.name = name
        self.described = default_pod(name, host_network=script.host_network)
        self.described.MergeFrom(script.described)
        if script.described.HasField("linux") and script.described.linux.namespaces:
            del self.described.linux.namespaces[:]
            self.described.linux.namespaces.extend(script.described.linux.namespaces)
        self.containers = {
            container: PlayedContainer(container, self.described, found)
            for container, found in script.containers.items()
        }
        self.exists = False


class PlayedNode:
    """All pods, and the updates that plugins requested."""

    def __init__(self, pods: Mapping[str, PodScript]) -> None:
        self.pods = {name: PlayedPod(name, pod) for name, pod in pods.items()}
        self.updates: list[pb.ContainerUpdate] = []

    async def update_containers(self, updates: Sequence[pb.ContainerUpdate]) -> list[pb.ContainerUpdate]:
        """Updates of unknown containers fail, as in a runtime."""
        self.updates += updates
        containers = {container.described().id: container for container in self.containers()}
        for update in updates:
            if update.container_id in containers:
                containers[update.container_id].update(update.linux.resources)
        return [update for update in updates if update.container_id not in containers]

    def containers(self) -> list[PlayedContainer]:
        return [container for pod in self.pods.values() for container in pod.containers.values() if container.exists]

    def id_of(self, name: str) -> str:
        """The id of POD/CONTAINER or of CONTAINER; an unknown name is returned unchanged."""
        for pod in self.pods.values():
            for container in pod.containers.values():
                if name in (container.name, f"{pod.name}/{container.name}"):
                    return container.described().id
        return name

    def fill(self, count: int) -> None:
        """Adds pods with a running container each, for tests of big nodes."""
        for number in range(count):
            name = f"filler-{number}"
            if name not in self.pods:
                app = ContainerScript(known=pb.Container(), spec={})
                pod = self.pods[name] = PlayedPod(name, PodScript(described=pb.PodSandbox(), containers={"app": app}))
                pod.exists = pod.containers["app"].exists = True
                pod.containers["app"].state = pb.CONTAINER_RUNNING

    def snapshot(self) -> tuple[list[pb.PodSandbox], list[pb.Container]]:
        """The pods and containers of a Synchronize after a restart."""
        pods = [pod.described for pod in self.pods.values() if pod.exists]
        running = [container.described() for container in self.containers() if container.state != pb.CONTAINER_STOPPED]
        return pods, running


def identity(text: str) -> str:
    """A stable id for a name."""
    return hashlib.sha256(text.encode()).hexdigest()


def default_pod(name: str, *, host_network: bool) -> pb.PodSandbox:
    uid = identity(f"uid of {name}")
    uid = f"{uid[:8]}-{uid[8:12]}-{uid[12:16]}-{uid[16:20]}-{uid[20:32]}"
    pod = pb.PodSandbox(id=identity(f"pod {name}"), name=name, uid=uid, namespace="default", pid=PID)
    pod.labels.update(
        {
            "io.kubernetes.pod.name": name,
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.uid": uid,
        }
    )
    pod.linux.cgroup_parent = f"/kubepods/burstable/pod{uid}"
    pod.linux.cgroups_path = f"/kubepods/burstable/pod{uid}/{pod.id}"
    for kind in ("pid", "ipc", "uts", "mount"):
        pod.linux.namespaces.add(type=kind)
    if not host_network:
        pod.linux.namespaces.add(type="network", path=f"/var/run/netns/cni-{uid}")
        pod.ips.append("10.0.0.2")
    return pod


def default_spec(name: str, pod: pb.PodSandbox) -> dict[str, Any]:
    """A typical config.json of a small container."""
    namespaces = [{"type": kind} for kind in ("pid", "mount")]
    namespaces += [{"type": kind, "path": f"/proc/{PID}/ns/{kind}"} for kind in ("ipc", "uts")]
    if any(namespace.type == "network" for namespace in pod.linux.namespaces):
        namespaces.append({"type": "network", "path": f"/proc/{PID}/ns/net"})
    return {
        "ociVersion": "1.2.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/app"],
            "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", f"HOSTNAME={pod.name}"],
            "cwd": "/",
            "oomScoreAdj": 1000,
        },
        "root": {"path": "rootfs"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        ],
        "annotations": {
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": name,
            "io.kubernetes.cri.sandbox-name": pod.name,
            "io.kubernetes.cri.sandbox-namespace": pod.namespace,
            "io.kubernetes.cri.sandbox-id": pod.id,
        },
        "linux": {
            "resources": {"cpu": {"shares": 102, "quota": 0, "period": 100000}, "memory": {"limit": 134217728}},
            "cgroupsPath": f"{pod.linux.cgroup_parent}/{name}",
            "namespaces": namespaces,
        },
    }


def merged_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges mappings recursively; lists and values are replaced."""
    merged = {key: merged_over(value, {}) if isinstance(value, Mapping) else value for key, value in below.items()}
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merged_over(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def _cdi(_names: Sequence[str]) -> Mapping[str, Any]:
    """No CDI files are read: CDI devices show in the adjustment and do not change config.json."""
    return {}
