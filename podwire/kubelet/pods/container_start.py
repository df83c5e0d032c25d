"""Starts a container in the sandbox of its pod: the action behind StartContainer."""

import logging
from collections.abc import Mapping
from pathlib import Path

from podwire.failpoints import declare, failpoint
from podwire.interfaces import Clock
from podwire.kubelet.claims import ClaimManager, ClaimsNotReady
from podwire.kubelet.config import dns
from podwire.kubelet.config.container import container_config
from podwire.kubelet.config.environment import ConfigError, environment, needs
from podwire.kubelet.devices import DeviceManager, DevicesNotReady
from podwire.kubelet.events import ContainerEvents
from podwire.kubelet.images.puller import ImageError, ImagePuller
from podwire.kubelet.pods.creating_calls import CreatingCalls
from podwire.kubelet.pods.hooks import FAILED_POST_START, HookFailed, run_hook
from podwire.kubelet.pods.limits import PodLimits
from podwire.kubelet.pods.node_context import NodeContext
from podwire.kubelet.pods.observed import OWNER, ObservedPod
from podwire.kubelet.pods.sandbox_start import SandboxStarter
from podwire.kubelet.pods.status import pod_ips
from podwire.kubelet.ports import Cri
from podwire.kubelet.probes import Prober
from podwire.kubelet.referenced_objects import NotSynced, ReferencedObjects
from podwire.kubelet.volumes import VolumeManager, VolumesNotReady
from podwire.linux.fs.regular_files import write_in_place
from podwire.objects.containers import Container
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

CREATED = declare("kubelet.container-created", "a container is created, and not started")
STARTED = declare("kubelet.container-started", "a container runs; its status was not reported yet")


class CannotStart(Exception):
    """A container does not start; `reason` and the message are for its status."""

    def __init__(self, reason: str, message: str, retry_at: float | None = None, *, created: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.created = created
        """The container exists: its start failed, or it was stopped because its postStart hook failed."""
        self.retry_at = retry_at
        """The time of the next attempt unless an event allows one earlier; None: only after an event."""


class ContainerStarter:
    """1. Image.  2. Devices, claims, environment and mounts.  3. Create.  4. Start.  5. The postStart hook.

    Fail-closed: whatever of 1 and 2 is missing raises CannotStart before the runtime is asked for anything, so that no
    container ever runs without a device or claim that its pod requests.
    """

    def __init__(
        self,
        cri: Cri,
        calls: CreatingCalls,
        clock: Clock,
        events: ContainerEvents,
        node: NodeContext,
        sandboxes: SandboxStarter,
        images: ImagePuller,
        objects: ReferencedObjects,
        volumes: VolumeManager,
        devices: DeviceManager,
        claims: ClaimManager,
        prober: Prober,
        limits: PodLimits,
    ) -> None:
        self._cri = cri
        self._calls = calls
        self._clock = clock
        self._events = events
        self._node = node
        self._sandboxes = sandboxes
        self._images = images
        self._objects = objects
        self._volumes = volumes
        self._devices = devices
        self._claims = claims
        self._prober = prober
        self._limits = limits

    async def start(self, pod: Pod, container: Container, attempt: int, observed: ObservedPod) -> None:
        """Raises CannotStart."""
        sandbox = observed.sandbox
        if sandbox is None:
            raise LookupError(f"pod {pod.ref} has no sandbox")
        image = await self._image(pod, container)
        images = await self._image_volumes(pod, container)
        config = await self._config(pod, container, attempt, observed, image, images)
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox.id, config=config, sandbox_config=self._sandboxes.config(pod, sandbox.attempt)
        )
        try:
            response = await self._calls.call(pod.uid, methods.CREATE_CONTAINER, request, self._limits.runtime_call)
        except RpcError as error:
            self._warn(pod, container, "Failed", f"Error: {error}")
            raise CannotStart("CreateContainerError", str(error), self._soon()) from error
        failpoint(CREATED)
        self._events.record(pod, container, NORMAL, "Created", f"Created container: {container.name}")
        id_ = response.container_id
        try:
            start = pb.StartContainerRequest(container_id=id_)
            await self._calls.call(pod.uid, methods.START_CONTAINER, start, self._limits.runtime_call)
        except RpcError as error:
            self._warn(pod, container, "Failed", f"Error: {error}")
            raise CannotStart("RunContainerError", str(error), created=True) from error
        failpoint(STARTED)
        self._events.record(pod, container, NORMAL, "Started", f"Started container {container.name}")
        await self._run_post_start_hook(pod, container, id_, pod_ips(pod, observed, self._node.facts().ips))

    async def _image_volumes(self, pod: Pod, container: Container) -> dict[str, pb.ImageSpec]:
        """Images that the container mounts as volumes, by the name of the volume. Raises CannotStart."""
        images = {}
        used = {mount.name for mount in container.volume_mounts}
        for volume in pod.spec.volumes:
            if volume.image is None or volume.name not in used:
                continue
            reference, policy = volume.image.get("reference") or "", volume.image.get("pullPolicy") or ""
            # A container without a name: the events are about the pod.
            image = await self._image(pod, Container(name="", image=reference, image_pull_policy=policy))
            images[volume.name] = pb.ImageSpec(
                image=image.id, user_specified_image=reference, annotations=pod.metadata.annotations
            )
        return images

    async def _image(self, pod: Pod, container: Container) -> pb.Image:
        try:
            names = [secret.name for secret in pod.spec.image_pull_secrets]
            secrets = [await self._objects.get("Secret", pod.namespace, name) for name in names]
            existing = [secret for secret in secrets if secret is not None]
            return await self._images.ensure(pod, container, pull_secrets=existing)
        except ImageError as error:
            raise CannotStart(error.reason, str(error), error.retry_at) from error
        except NotSynced as error:
            raise CannotStart("ErrImagePull", str(error), self._soon()) from error

    async def _config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        observed: ObservedPod,
        image: pb.Image,
        images: Mapping[str, pb.ImageSpec],
    ) -> pb.ContainerConfig:
        try:
            sandbox = observed.sandbox.id if observed.sandbox is not None else ""
            options = await self._devices.allocate(pod, container, sandbox)
            claimed = await self._claims.devices(pod, container)
        except DevicesNotReady as error:
            self._warn(pod, container, error.reason, str(error))
            raise CannotStart(error.reason, str(error), self._soon()) from error
        except ClaimsNotReady as error:
            self._warn(pod, container, error.reason, error.event_message)
            raise CannotStart(error.reason, str(error), self._soon()) from error
        try:
            env = {**options.env, **await self._environment(pod, container, observed)}
            mounts = await self._mounts(pod, container, attempt, observed, env, images)
            taken = {mount.container_path for mount in mounts}
            mounts += [mount for mount in options.mounts if mount.container_path not in taken]
            config = container_config(
                pod,
                container,
                attempt=attempt,
                image=image,
                env=env,
                mounts=mounts,
                node=self._node.facts(),
                log_path=f"{container.name}/{attempt}.log",
                seccomp_root=str(self._node.paths.root / "seccomp"),
                devices=(*options.devices, *self._volumes.devices(pod, container)),
                cdi_devices=tuple(dict.fromkeys((*options.cdi_devices, *claimed))),
                annotations={**options.annotations, OWNER: self._node.paths.owner},
                target=_target(container, observed),
                first_id=self._node.first_id(pod),
            )
        except (ConfigError, NotSynced, VolumesNotReady, OSError) as error:
            self._warn(pod, container, "Failed", f"Error: {error}")
            # What is wrong with the pod's own configuration changes with the pod or with an object that it names.
            retry_at = None if isinstance(error, ConfigError) else self._soon()
            raise CannotStart("CreateContainerConfigError", str(error), retry_at) from error
        groups = config.linux.security_context.supplemental_groups
        groups.extend(group for group in self._volumes.groups(pod) if group not in groups)
        return config

    async def _environment(self, pod: Pod, container: Container, observed: ObservedPod) -> dict[str, str]:
        objects: dict[str, dict[str, Object | None]] = {"ConfigMap": {}, "Secret": {}}
        for need in needs(container):
            objects[need.kind][need.name] = await self._objects.get(need.kind, pod.namespace, need.name)
        node = self._node.facts()
        env, warnings = environment(
            pod, container, node=node, pod_ips=pod_ips(pod, observed, node.ips),
            config_maps=objects["ConfigMap"], secrets=objects["Secret"], services=self._node.services(),
        )  # fmt: skip
        for warning in warnings:
            self._warn(pod, container, "InvalidEnvironmentVariableNames", warning)
        return env

    async def _mounts(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        observed: ObservedPod,
        env: Mapping[str, str],
        images: Mapping[str, pb.ImageSpec],
    ) -> list[pb.Mount]:
        """Volumes, and the files that the kubelet writes: /etc/hosts and the termination message."""
        mounts = list(await self._volumes.mounts(pod, container, env, images))
        taken = {mount.container_path for mount in mounts}
        paths, settings = self._node.paths, self._node.dns
        ips = pod_ips(pod, observed, self._node.facts().ips)
        hosts = dns.hosts_file(
            pod, *dns.pod_hostname(pod, settings.cluster_domain), ips, node_hosts=settings.node_hosts
        )
        etc_hosts = paths.etc_hosts(pod.uid)
        message = paths.termination_message(pod.uid, container.name, attempt)
        log_directory = paths.pod_logs(pod.namespace, pod.name, pod.uid) / container.name
        await thread_to_completion(_write_files, etc_hosts, hosts, message, log_directory)
        if "/etc/hosts" not in taken:
            mounts.append(pb.Mount(container_path="/etc/hosts", host_path=str(etc_hosts)))
        if container.termination_message_path and container.termination_message_path not in taken:
            mounts.append(pb.Mount(container_path=container.termination_message_path, host_path=str(message)))
        return mounts

    async def _run_post_start_hook(self, pod: Pod, container: Container, id_: str, ips: tuple[str, ...]) -> None:
        hook = container.lifecycle.post_start if container.lifecycle is not None else None
        if hook is None:
            return
        try:
            await run_hook(hook, pod, container, id_, ips, self._prober, timeout=None)
        except HookFailed as error:
            log.info("postStart hook failed, stopping container", extra={"error": str(error)})
            self._warn(pod, container, *FAILED_POST_START)
            request = pb.StopContainerRequest(container_id=id_, timeout=pod.spec.termination_grace_period_seconds)
            deadline = request.timeout + self._limits.runtime_call
            await self._cri.call(methods.STOP_CONTAINER, request, timeout=deadline)
            raise CannotStart("PostStartHookError", str(error), created=True) from error

    def _soon(self) -> float:
        return self._clock.monotonic() + self._limits.start_retry

    def _warn(self, pod: Pod, container: Container, reason: str, message: str) -> None:
        self._events.record(pod, container, WARNING, reason, message)


def _target(container: Container, observed: ObservedPod) -> str:
    """Returns the id of the container whose processes an ephemeral one sees; empty for none. Raises ConfigError."""
    if not (name := container.target_container_name):
        return ""
    if (target := observed.latest(name)) is None:
        raise ConfigError(f"unable to find target container {name}")
    return target.id


def _write_files(etc_hosts: Path, hosts: str, message: Path, log_directory: Path) -> None:
    """Containers of the pod may have written anything to their /etc/hosts; it is the pod's own again for the next."""
    message.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    # The user of the container is not known here and must be able to write the file.
    write_in_place(message, b"", 0o666)
    write_in_place(etc_hosts, hosts.encode(), 0o644)
    log_directory.mkdir(mode=0o755, parents=True, exist_ok=True)
