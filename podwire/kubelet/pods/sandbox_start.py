"""Runs the sandbox of a pod: the action behind RunSandbox."""

from pathlib import Path

from podwire.failpoints import declare, failpoint
from podwire.kubelet.claims import ClaimManager
from podwire.kubelet.config import dns
from podwire.kubelet.config.sandbox import sandbox_config
from podwire.kubelet.devices import DeviceManager
from podwire.kubelet.devices.pod_devices import ANNOTATION as DEVICES
from podwire.kubelet.pods.creating_calls import CreatingCalls
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.node_context import NodeContext
from podwire.kubelet.pods.observed import OWNER
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.tasks.uncancelled import thread_to_completion

RUNTIME_CLASSES = Kind(
    group="node.k8s.io", version="v1", resource="runtimeclasses", kind="RuntimeClass", namespaced=False
)

SANDBOX_RUN = declare("kubelet.sandbox-run", "a pod has its sandbox; the kubelet has not noted it yet")


class NoHandler(Exception):
    """The runtime handler of a pod's RuntimeClass could not be looked up."""


class SandboxStarter:
    def __init__(
        self,
        api: Client,
        calls: CreatingCalls,
        recorder: Recorder,
        node: NodeContext,
        devices: DeviceManager,
        claims: ClaimManager,
        limits: PodLimits,
    ) -> None:
        self._api = api
        self._calls = calls
        self._recorder = recorder
        self._node = node
        self._devices = devices
        self._claims = claims
        self._limits = limits

    def config(self, pod: Pod, attempt: int) -> pb.PodSandboxConfig:
        """Raises ConfigError, NameTooLong."""
        settings = self._node.dns
        config = sandbox_config(
            pod,
            attempt=attempt,
            hostname=dns.kernel_name(pod, settings.cluster_domain),
            dns=dns.pod_dns(pod, settings)[0],
            log_directory=str(self._node.paths.pod_logs(pod.namespace, pod.name, pod.uid)),
            first_id=self._node.first_id(pod),
            pids=self._node.pids(),
        )
        config.annotations[OWNER] = self._node.paths.owner
        config.annotations.pop(DEVICES, None)  # a pod must not claim devices by an annotation of its own
        if devices := self._devices.annotation(pod.uid):
            config.annotations[DEVICES] = devices
        for name, text in self._claims.annotations(pod, config.annotations).items():
            config.annotations[name] = text
        return config

    async def run(self, pod: Pod, attempt: int) -> str:
        """Returns the id of the new sandbox. Raises RpcError, NoHandler, ConfigError, NameTooLong, OSError."""
        _, missing = dns.pod_dns(pod, self._node.dns)
        if missing:
            self._recorder.tell(pod, WARNING, "MissingClusterDNS", missing)
        for message in dns.omitted(pod, self._node.dns):
            self._recorder.tell(pod, WARNING, "DNSConfigForming", message)
        config = self.config(pod, attempt)
        await thread_to_completion(_make_directories, self._node.paths.pod(pod.uid), Path(config.log_directory))
        request = pb.RunPodSandboxRequest(config=config, runtime_handler=await self._handler(pod))
        response = await self._calls.call(pod.uid, methods.RUN_POD_SANDBOX, request, self._limits.run_sandbox)
        failpoint(SANDBOX_RUN)
        return response.pod_sandbox_id

    async def _handler(self, pod: Pod) -> str:
        """The handler of the pod's RuntimeClass; without one, the runtime chooses. Raises NoHandler."""
        name = pod.spec.runtime_class_name
        if not name:
            return ""
        try:
            runtime_class = await self._api.get(RUNTIME_CLASSES, name)
        except (ApiError, ClientError) as error:
            raise NoHandler(f"failed to lookup RuntimeClass {name}: {error}") from error
        handler: str = runtime_class["handler"]
        return handler


def _make_directories(pod: Path, logs: Path) -> None:
    """The pod's own directory comes first and is removed last: it tells a later kubelet that there may be logs."""
    pod.mkdir(mode=0o750, parents=True, exist_ok=True)
    logs.mkdir(mode=0o755, parents=True, exist_ok=True)
