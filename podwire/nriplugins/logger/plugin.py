"""The plugin to copy: every hook that there is, with one line in the log for each.

Keep the hooks that you need and delete the others; the runtime then asks for no more than that.
"""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from podwire.nri import Adjustment, Plugin, Runtime, Updates, main, pb

_log = logging.getLogger("podwire.nriplugins.logger")


class Logger(Plugin):
    """Log what the runtime does; by configuration, mark the containers that it creates."""

    name = "logger"
    index = "00"

    def __init__(self) -> None:
        self._annotations: Mapping[str, str] = {}
        self._env: Mapping[str, str] = {}

    async def configure(self, config: str, runtime: Runtime) -> None:
        self._annotations, self._env = read(config)
        self._tell("Configure", runtime=f"{runtime.name} {runtime.version}", seconds=runtime.request_timeout)

    async def synchronize(self, pods: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> Updates | None:
        self._tell("Synchronize", pods=len(pods), containers=len(containers))
        return None

    async def pod_vanished(self, pod: pb.PodSandbox) -> None:
        self._tell("vanished", pod)

    async def shutdown(self) -> None:
        self._tell("Shutdown")

    # Pods.

    async def run_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        self._tell("RunPodSandbox", pod)

    async def update_pod_sandbox(
        self, pod: pb.PodSandbox, overhead: pb.LinuxResources, resources: pb.LinuxResources
    ) -> None:
        self._tell("UpdatePodSandbox", pod, overhead=_line(overhead), resources=_line(resources))

    async def post_update_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        self._tell("PostUpdatePodSandbox", pod)

    async def stop_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        self._tell("StopPodSandbox", pod)

    async def remove_pod_sandbox(self, pod: pb.PodSandbox) -> None:
        self._tell("RemovePodSandbox", pod)

    # Containers.

    async def create_container(self, pod: pb.PodSandbox, container: pb.Container) -> Adjustment | None:
        self._tell("CreateContainer", pod, container)
        adjustment = Adjustment()
        for key, value in self._annotations.items():
            adjustment.add_annotation(key, value)
        for name, value in self._env.items():
            adjustment.add_env(name, value)
        return adjustment

    async def post_create_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        self._tell("PostCreateContainer", pod, container)

    async def start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        self._tell("StartContainer", pod, container)

    async def post_start_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        self._tell("PostStartContainer", pod, container)

    async def update_container(
        self, pod: pb.PodSandbox, container: pb.Container, resources: pb.LinuxResources
    ) -> Updates | None:
        self._tell("UpdateContainer", pod, container, resources=_line(resources))
        return None

    async def post_update_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        self._tell("PostUpdateContainer", pod, container)

    async def stop_container(self, pod: pb.PodSandbox, container: pb.Container) -> Updates | None:
        self._tell("StopContainer", pod, container)
        return None

    async def remove_container(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        self._tell("RemoveContainer", pod, container)

    async def validate(self, request: pb.ValidateContainerAdjustmentRequest) -> str | None:
        plugins = ",".join(f"{plugin.index}-{plugin.name}" for plugin in request.plugins)
        self._tell("ValidateContainerAdjustment", request.pod, request.container, plugins=plugins)
        return None

    def _tell(
        self, what: str, pod: pb.PodSandbox | None = None, container: pb.Container | None = None, **facts: object
    ) -> None:
        if pod is not None:
            facts |= {"pod": f"{pod.namespace}/{pod.name}", "netns": self.netns_of(pod), "ips": ",".join(pod.ips)}
        if container is not None:
            facts |= {"container": container.name}
        if self.traceparent:
            facts |= {"traceparent": self.traceparent}
        _log.info(what, extra={name: value for name, value in facts.items() if value != ""})


def read(config: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Annotations and variables for every container: {"annotations": {…}, "env": {…}}. Raises ValueError."""
    settings = json.loads(config) if config.strip() else {}
    if not isinstance(settings, dict) or (unknown := sorted(set(settings) - {"annotations", "env"})):
        what = ", ".join(unknown) if isinstance(settings, dict) else "no object"
        raise ValueError(f"configuration: {what}; there are annotations and env")
    return _texts(settings, "annotations"), _texts(settings, "env")


def _texts(settings: Mapping[str, Any], field: str) -> Mapping[str, str]:
    texts = settings.get(field, {})
    if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
        raise ValueError(f"configuration: {field} must be an object of strings")
    return texts


def _line(message: pb.LinuxResources) -> str:
    """A message in one line; empty when there is nothing in it."""
    return " ".join(str(message).split())


if __name__ == "__main__":
    sys.exit(main(Logger()))
