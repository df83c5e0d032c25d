"""Makes a pod's sandbox and starts its containers: the deeds behind RunSandbox and StartContainer."""

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from podwire.failpoints import declare, failpoint
from podwire.kubelet.claims import ClaimsNotReady
from podwire.kubelet.config import dns
from podwire.kubelet.config.container import container_config, container_hash
from podwire.kubelet.config.environment import ConfigError, environment, needs
from podwire.kubelet.config.sandbox import sandbox_config
from podwire.kubelet.devices import DeviceRunOptions, DevicesNotReady
from podwire.kubelet.devices.records import ANNOTATION as DEVICES
from podwire.kubelet.images.puller import ImageError
from podwire.kubelet.pods import termination_message
from podwire.kubelet.pods.dependencies import Kit
from podwire.kubelet.pods.hooks import FAILED_POST_START, HookFailed, run_hook
from podwire.kubelet.pods.observed import OWNER, ObservedPod
from podwire.kubelet.pods.status import pod_ips
from podwire.kubelet.referenced_objects import NotSynced
from podwire.kubelet.volumes import VolumesNotReady
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side import ClientError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
"""Until something that may pass by itself is tried again."""
SANDBOX_SECONDS = 240.0
CALL_SECONDS = 120.0
"""A runtime has so much time: for a sandbox, which a network plugin may hold up, and for everything else."""
RUNTIME_CLASSES = Kind(
    group="node.k8s.io", version="v1", resource="runtimeclasses", kind="RuntimeClass", namespaced=False
)


SANDBOX_RUN = declare("kubelet.sandbox-run", "a pod has its sandbox; nobody here has noted it yet")
CREATED = declare("kubelet.container-created", "a container is made, and not started")
STARTED = declare("kubelet.container-started", "a container runs; nobody was told yet")


class CannotStart(Exception):
    """A container does not start; `reason` and the message are for its status."""

    def __init__(self, reason: str, message: str, retry_at: float | None = None, *, made: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.made = made
        """There is a container, which ended as soon as it began, or never did."""
        self.retry_at = retry_at
        """When trying again makes sense, if nothing tells earlier; None: when something does."""


class NoHandler(Exception):
    """It is not known which of the runtime's handlers a pod is to have."""


class ContainerStarter:
    """One pod's start. Keeps nothing but what it has told."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    def sandbox_config(self, pod: Pod, attempt: int) -> pb.PodSandboxConfig:
        dns_config, _ = dns.dns_of(pod, *self._kit.dns.means)
        config = sandbox_config(
            pod,
            attempt=attempt,
            hostname=dns.kernel_name(pod, self._kit.dns.cluster_domain),
            dns=dns_config,
            log_directory=str(self._log_directory(pod)),
        )
        config.annotations[OWNER] = self._kit.places.owner
        config.annotations.pop(DEVICES, None)  # which devices a pod has is not the pod's to say
        if devices := self._kit.devices.annotation(pod.uid):
            config.annotations[DEVICES] = devices
        for name, text in self._kit.claims.annotations(pod, config.annotations).items():
            config.annotations[name] = text
        return config

    async def sandbox(self, pod: Pod, attempt: int) -> str:
        """Run a sandbox and give its id. RpcError, NoHandler."""
        self._tell_of_dns(pod)
        config = self.sandbox_config(pod, attempt)
        await asyncio.to_thread(Path(config.log_directory).mkdir, 0o755, parents=True, exist_ok=True)
        request = pb.RunPodSandboxRequest(config=config, runtime_handler=await self._handler(pod))
        answer = await self._kit.cri.call(methods.RUN_POD_SANDBOX, request, timeout=SANDBOX_SECONDS)
        failpoint(SANDBOX_RUN)
        return answer.pod_sandbox_id

    async def _handler(self, pod: Pod) -> str:
        """Of the pod's RuntimeClass; the runtime's own choice for a pod without one. NoHandler."""
        name = pod.spec.runtime_class_name
        if not name:
            return ""
        try:
            found = await self._kit.api.get(RUNTIME_CLASSES, name)
        except (ApiError, ClientError) as error:
            raise NoHandler(f"failed to lookup RuntimeClass {name}: {error}") from error
        handler: str = found["handler"]
        return handler

    async def container(self, pod: Pod, container: Container, attempt: int, observed: ObservedPod) -> str:
        """Start a container in the pod's sandbox and give its id. CannotStart.

        1. Image.  2. Devices, claims, environment and mounts.  3. Create.  4. Start.  5. The postStart hook.
        """
        sandbox = observed.sandbox
        if sandbox is None:
            raise LookupError(f"{pod.ref} has no sandbox")
        image = await self._image(pod, container)
        config = await self._config(pod, container, attempt, observed, image)
        made = await self._create(pod, container, sandbox.id, sandbox.attempt, config)
        await self._start(pod, container, made)
        await self._after_start(pod, container, made, pod_ips(pod, observed, self._kit.node().ips))
        return made

    async def _image(self, pod: Pod, container: Container) -> pb.Image:
        try:
            return await self._kit.images.ensure(pod, container, pull_secrets=await self._pull_secrets(pod))
        except ImageError as error:
            raise CannotStart(error.reason, str(error), error.retry_at) from error
        except NotSynced as error:
            raise CannotStart("ErrImagePull", str(error), self._soon()) from error

    async def _pull_secrets(self, pod: Pod) -> tuple[Object, ...]:
        names = [each.name for each in pod.spec.image_pull_secrets]
        found = [await self._kit.references.get("Secret", pod.namespace, each) for each in names]
        return tuple(each for each in found if each is not None)

    async def _config(
        self, pod: Pod, container: Container, attempt: int, observed: ObservedPod, image: pb.Image
    ) -> pb.ContainerConfig:
        given = await self._devices(pod, container, observed)
        claimed = await self._claimed(pod, container)
        try:
            env = {**given.env, **await self._environment(pod, container, observed)}
            mounts = await self._mounts(pod, container, attempt, observed, env)
            taken = {each.container_path for each in mounts}
            mounts += [each for each in given.mounts if each.container_path not in taken]
            return container_config(
                pod,
                container,
                attempt=attempt,
                image=image,
                env=env,
                mounts=mounts,
                node=self._kit.node(),
                log_path=f"{container.name}/{attempt}.log",
                seccomp_root=str(self._kit.places.root / "seccomp"),
                devices=given.devices,
                cdi_devices=tuple(dict.fromkeys((*given.cdi_devices, *claimed))),
                annotations=given.annotations,
            )
        except (ConfigError, NotSynced) as error:
            self._failed(pod, container, "Failed", f"Error: {error}")
            retry_at = self._soon() if isinstance(error, NotSynced) else None
            raise CannotStart("CreateContainerConfigError", str(error), retry_at) from error
        except (VolumesNotReady, OSError) as error:
            self._failed(pod, container, "Failed", f"Error: {error}")
            raise CannotStart("CreateContainerConfigError", str(error), self._soon()) from error

    async def _devices(self, pod: Pod, container: Container, observed: ObservedPod) -> DeviceRunOptions:
        try:
            sandbox = observed.sandbox.id if observed.sandbox is not None else ""
            return await self._kit.devices.allocate(pod, container, sandbox)
        except DevicesNotReady as error:
            self._failed(pod, container, error.reason, str(error))
            raise CannotStart(error.reason, str(error), self._soon()) from error

    async def _claimed(self, pod: Pod, container: Container) -> tuple[str, ...]:
        try:
            return await self._kit.claims.devices(pod, container)
        except ClaimsNotReady as error:
            self._failed(pod, container, error.reason, error.told)
            raise CannotStart(error.reason, str(error), self._soon()) from error

    async def _environment(self, pod: Pod, container: Container, observed: ObservedPod) -> dict[str, str]:
        found: dict[str, dict[str, Object | None]] = {"ConfigMap": {}, "Secret": {}}
        for need in needs(container):
            found[need.kind][need.name] = await self._kit.references.get(need.kind, pod.namespace, need.name)
        node = self._kit.node()
        env, warnings = environment(
            pod, container, node=node, pod_ips=pod_ips(pod, observed, node.ips),
            config_maps=found["ConfigMap"], secrets=found["Secret"], services=self._kit.services(),
        )  # fmt: skip
        for each in warnings:
            self._failed(pod, container, "InvalidEnvironmentVariableNames", each)
        return env

    async def _mounts(
        self, pod: Pod, container: Container, attempt: int, observed: ObservedPod, env: Mapping[str, str]
    ) -> list[pb.Mount]:
        mounts = list(await self._kit.volumes.mounts(pod, container, env))
        taken = {each.container_path for each in mounts}
        root = self._kit.places.root
        ips = pod_ips(pod, observed, self._kit.node().ips)
        names = dns.hostname_of(pod, self._kit.dns.cluster_domain)
        hosts = dns.hosts_file(pod, *names, ips, node_hosts=self._kit.dns.node_hosts)
        words = termination_message.message_file(root, pod.uid, container.name, attempt)
        etc_hosts = root / "pods" / pod.uid / "etc-hosts"
        log_directory = self._log_directory(pod) / container.name
        await asyncio.to_thread(_write_files, etc_hosts, hosts, words, log_directory)
        if "/etc/hosts" not in taken:
            mounts.append(pb.Mount(container_path="/etc/hosts", host_path=str(etc_hosts)))
        if container.termination_message_path and container.termination_message_path not in taken:
            mounts.append(pb.Mount(container_path=container.termination_message_path, host_path=str(words)))
        return mounts

    async def _create(
        self, pod: Pod, container: Container, sandbox: str, attempt: int, config: pb.ContainerConfig
    ) -> str:
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=config, sandbox_config=self.sandbox_config(pod, attempt)
        )
        try:
            answer = await self._kit.cri.call(methods.CREATE_CONTAINER, request, timeout=CALL_SECONDS)
        except RpcError as error:
            self._failed(pod, container, "Failed", f"Error: {error}")
            raise CannotStart("CreateContainerError", str(error), self._soon()) from error
        failpoint(CREATED)
        self._told(pod, container, "Created", f"Created container: {container.name}")
        return answer.container_id

    async def _start(self, pod: Pod, container: Container, id_: str) -> None:
        try:
            request = pb.StartContainerRequest(container_id=id_)
            await self._kit.cri.call(methods.START_CONTAINER, request, timeout=CALL_SECONDS)
        except RpcError as error:
            self._failed(pod, container, "Failed", f"Error: {error}")
            raise CannotStart("RunContainerError", str(error), made=True) from error
        failpoint(STARTED)
        self._told(pod, container, "Started", f"Started container {container.name}")

    async def _after_start(self, pod: Pod, container: Container, id_: str, ips: tuple[str, ...]) -> None:
        hook = container.lifecycle.post_start if container.lifecycle is not None else None
        if hook is None:
            return
        try:
            await run_hook(hook, pod, container, id_, ips, self._kit.prober, timeout=None)
        except HookFailed as error:
            log.info("postStart hook failed", extra={"why": str(error)})
            self._failed(pod, container, *FAILED_POST_START)
            request = pb.StopContainerRequest(container_id=id_, timeout=pod.spec.termination_grace_period_seconds)
            await self._kit.cri.call(methods.STOP_CONTAINER, request, timeout=request.timeout + CALL_SECONDS)
            raise CannotStart("PostStartHookError", str(error), made=True) from error

    def _tell_of_dns(self, pod: Pod) -> None:
        _, missing = dns.dns_of(pod, *self._kit.dns.means)
        if missing:
            self._kit.recorder.tell(pod, WARNING, "MissingClusterDNS", missing)
        for each in dns.dns_left_out(pod, *self._kit.dns.means):
            self._kit.recorder.tell(pod, WARNING, "DNSConfigForming", each)

    def _log_directory(self, pod: Pod) -> Path:
        return self._kit.places.pod_logs(pod.namespace, pod.name, pod.uid)

    def _soon(self) -> float:
        return self._kit.clock.monotonic() + RETRY_SECONDS

    def _told(self, pod: Pod, container: Container, reason: str, message: str) -> None:
        self._kit.recorder.tell(pod, NORMAL, reason, message, field_path=field_path(pod, container))

    def _failed(self, pod: Pod, container: Container, reason: str, message: str) -> None:
        self._kit.recorder.tell(pod, WARNING, reason, message, field_path=field_path(pod, container))


def field_path(pod: Pod, container: Container) -> str:
    """Where a container stands in its pod, as events say it."""
    places = (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers))
    place = next((name for name, members in places if container in members), "ephemeralContainers")
    return f"spec.{place}{{{container.name}}}"


def hashes(pod: Pod) -> dict[str, str]:
    return {each.name: container_hash(each) for each in pod.spec.every_container}


def _write_files(etc_hosts: Path, hosts: str, words: Path, log_directory: Path) -> None:
    """The files that a container is given, and the directory of its log."""
    words.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    # Whoever the container runs as may write its last words.
    descriptor = os.open(words, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    os.fchmod(descriptor, 0o666)
    os.close(descriptor)
    if not etc_hosts.exists() or etc_hosts.read_text(encoding="utf-8") != hosts:
        etc_hosts.write_text(hosts, encoding="utf-8")
        etc_hosts.chmod(0o644)
    log_directory.mkdir(mode=0o755, parents=True, exist_ok=True)
