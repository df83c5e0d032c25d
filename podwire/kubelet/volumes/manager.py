"""The volume manager: sets volumes up, mounts them into containers, keeps them up to date, removes them."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from podwire.interfaces import Clock
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.volumes import container_mounts, persistent, subpaths, usage
from podwire.kubelet.volumes.contents import Contents
from podwire.kubelet.volumes.csi import sources as csi_sources
from podwire.kubelet.volumes.csi.sources import CsiSource
from podwire.kubelet.volumes.csi.volumes import CsiVolumes
from podwire.kubelet.volumes.errors import (
    MountFailed,
    NotProcessed,
    VolumeError,
    VolumesNotReady,
    not_processed,
    set_up_failed,
)
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.persistent import MountedVolume, is_external
from podwire.kubelet.volumes.ports import Mounts
from podwire.kubelet.volumes.setup import VolumeSetup
from podwire.kubelet.volumes.sources import Sources
from podwire.kubelet.volumes.steps import Step, check_type, has_contents, with_contents, without_contents
from podwire.kubelet.volumes.tokens import Tokens
from podwire.kubelet.volumes.usage import MountedUsage
from podwire.kubelet.volumes.volume_claims import VolumeClaims, claim_name, is_used
from podwire.objects.containers import Container, VolumeMount
from podwire.objects.nodes import Node
from podwire.objects.pods import Pod
from podwire.objects.volumes import Volume
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.client_side import Client
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

LOCAL = "kubernetes.io~local-volume"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")


class VolumeManager:
    """Calls for one pod are serialized by a keyed lock; those for different pods run concurrently."""

    def __init__(
        self,
        root: Path,
        references: ReferencedObjects,
        api: Client,
        mounts: Mounts,
        clock: Clock,
        *,
        node: Callable[[], NodeFacts],
        node_object: Callable[[], Node | None] = lambda: None,
        recursive_read_only: Callable[[], bool] = lambda: False,
        csi: Callable[[VolumePaths, Tokens], CsiVolumes] | None = None,
        wake: Callable[[frozenset[str]], None] = lambda _uids: None,
    ) -> None:
        """`node_object`: the Node as the API has it, whose labels say which persistent volumes it can access.
        `recursive_read_only`: whether the runtime supports recursive read-only mounts. `csi` makes the part for CSI
        volumes, None for a kubelet without it. `wake` is called with pods that may try again to set up volumes."""
        self._paths = VolumePaths(root)
        self._setup = VolumeSetup(self._paths, mounts)
        self._mounts = mounts
        self._clock = clock
        self._node = node
        self._node_object = node_object
        self._recursive_read_only = recursive_read_only
        self._tokens = Tokens(api, clock)
        self._sources = Sources(references, self._tokens, node)
        self._csi = None if csi is None else csi(self._paths, self._tokens)
        self._csi_failed: set[str] = set()
        """Pods whose CSI volumes could not be set up."""
        self._wake = wake
        self._claims = VolumeClaims(api)
        self._ready: dict[str, Pod] = {}
        self._mounted: dict[str, dict[str, MountedVolume]] = {}
        """Persistent volumes of pods, by uid and by the name of the pod's volume."""
        self._locks = KeyedLocks()
        self._tokens_changed = asyncio.Event()

    async def prepare(self, pod: Pod) -> None:
        """Set all volumes up; returns at once if they are. Raises VolumesNotReady, which names all that failed.

        1. Reject unsupported types.  2. Get objects and tokens, concurrently.  3. Write all in one worker thread.
        """
        async with self._locks.hold(pod.uid):
            if pod.uid in self._ready:
                return
            await self._set_up(pod, pod.spec.volumes)
            self._ready[pod.uid] = pod
        self._tokens_changed.set()

    async def refresh(self, pod: Pod) -> None:
        """Update volumes to the present objects, labels and annotations; unchanged ones are not written. The first
        time after a restart of the kubelet it finds the persistent volumes of a running pod again."""
        async with self._locks.hold(pod.uid):
            if pod.uid in self._ready:
                self._ready[pod.uid] = pod
                await self._set_up(pod, [volume for volume in pod.spec.volumes if has_contents(volume)])
            elif pod.uid not in self._mounted and any(map(is_external, pod.spec.volumes)):
                await self._set_up(pod, [volume for volume in pod.spec.volumes if is_external(volume)], running=True)
        self._tokens_changed.set()

    async def mounts(
        self,
        pod: Pod,
        container: Container,
        env: Mapping[str, str],
        images: Mapping[str, pb.ImageSpec] | None = None,
    ) -> tuple[pb.Mount, ...]:
        """CRI mounts of a container's volumeMounts. `images` are the images of image volumes, by the name of the
        volume. Raises VolumesNotReady."""
        volumes = {volume.name: volume for volume in pod.spec.volumes}
        mounts = []
        async with self._locks.hold(pod.uid):
            for index, mount in enumerate(container.volume_mounts):
                if mount.name not in volumes:
                    raise VolumesNotReady(
                        f'cannot find volume "{mount.name}" to mount into container "{container.name}"'
                    )
                volume = volumes[mount.name]
                if images and mount.name in images:
                    mounts.append(self._image_mount(container, mount, images[mount.name], env))
                else:
                    mounts.append(await self._mount(pod, container, index, mount, volume, env))
        return tuple(mounts)

    def devices(self, pod: Pod, container: Container) -> tuple[pb.Device, ...]:
        """Block devices of a container's volumeDevices. Raises VolumesNotReady."""
        devices, mounted = [], self._mounted.get(pod.uid, {})
        for device in container.volume_devices:
            volume = mounted.get(device.name)
            if volume is None or not volume.block:
                raise VolumesNotReady(f'cannot find volume "{device.name}" to pass into container "{container.name}"')
            permissions = "r" if volume.read_only else "mrw"
            devices.append(
                pb.Device(container_path=device.device_path, host_path=str(volume.path), permissions=permissions)
            )
        return tuple(devices)

    def groups(self, pod: Pod) -> tuple[int, ...]:
        """Supplementary groups that the pod's persistent volumes need."""
        mounted = self._mounted.get(pod.uid)
        return tuple({volume.group for volume in mounted.values() if volume.group is not None}) if mounted else ()

    async def remove(self, uid: str) -> None:
        """Unmount and delete everything of a pod, including leftovers of a killed kubelet. Raises OSError."""
        async with self._locks.hold(uid):
            self._ready.pop(uid, None)
            self._tokens.forget(uid)
            await self._tear_down_csi(uid)
            await thread_to_completion(self._setup.remove, uid)
            self._mounted.pop(uid, None)
            self._csi_failed.discard(uid)

    async def release(self, pod: Pod) -> None:
        """Unmount the persistent and CSI volumes of a pod that has ended, so that others can use them, although the pod
        is kept. Raises OSError."""
        if not any(map(is_external, pod.spec.volumes)):
            return
        async with self._locks.hold(pod.uid):
            self._ready.pop(pod.uid, None)
            await self._tear_down_csi(pod.uid)
            await thread_to_completion(self._setup.unmount_local, pod.uid)
            self._mounted.pop(pod.uid, None)

    async def usage(self, pod: Pod) -> dict[str, MountedUsage]:
        """Usage of a pod's local and CSI volumes, by the name of the pod's volume; the latter as drivers report."""
        mounted = self._mounted.get(pod.uid)
        if not mounted:
            return {}
        reports = {} if self._csi is None else await self._csi.statistics(pod.uid)
        usages = {}
        for volume in pod.spec.volumes:
            if (place := mounted.get(volume.name)) is None:
                continue
            claim = "" if volume.csi is not None else claim_name(pod, volume)
            if place.name in reports:
                usages[volume.name] = usage.of_response(reports[place.name], claim)
            elif place.path.parent.name == LOCAL:
                with suppress(OSError):
                    usages[volume.name] = await asyncio.to_thread(usage.of_path, place.path, claim)
        return usages

    def driver_registered(self, name: str) -> None:
        """A CSI driver can be called: pods that failed for want of it need not wait for their back-off."""
        if self._csi is not None:
            self._csi.driver_registered(name)
        self._wake(frozenset(self._csi_failed))

    def uids(self) -> set[str]:
        """Pods that have a directory. Other names, such as lost+found, are none of pods."""
        try:
            return {path.name for path in self._paths.pods.iterdir() if _UID.fullmatch(path.name)}
        except FileNotFoundError:
            return set()

    async def run(self) -> None:
        """Replace tokens in time, and run the part for CSI volumes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_tokens(), name="service account tokens")
            if self._csi is not None:
                group.create_task(self._csi.run(), name="CSI volumes")

    async def _follow_tokens(self) -> None:
        while True:
            self._tokens_changed.clear()
            due = self._tokens.next_due()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock.monotonic())):
                    await self._tokens_changed.wait()
            except TimeoutError:
                pass
            for uid in self._tokens.due():
                await self._replace_tokens(uid)

    async def close(self) -> None:
        """Unmount the tmpfs for secrets, if it is empty."""
        await thread_to_completion(self._setup.close)

    async def _replace_tokens(self, uid: str) -> None:
        pod = self._ready.get(uid)
        if pod is None:
            self._tokens.forget(uid)  # its volumes were never set up; a later attempt requests a new token
            return
        try:
            await self.refresh(pod)
        except VolumesNotReady as error:
            log.warning("cannot refresh service account token", extra={"pod": pod.ref, "error": str(error)})

    async def _tear_down_csi(self, uid: str) -> None:
        """Raises OSError."""
        if self._csi is not None and self._csi.has_volumes(uid):
            await thread_to_completion(self._setup.unmount_subpaths, uid)
            await self._csi.tear_down(uid)

    async def _set_up(self, pod: Pod, volumes: Sequence[Volume], *, running: bool = False) -> None:
        """`running`: the pod ran before this kubelet did, and what it has is left as it is."""
        decided = await asyncio.gather(*(self._plan(pod, volume) for volume in volumes))
        steps = [step for step in decided if step is not None and not isinstance(step, VolumeError | CsiSource)]
        errors = {
            volume.name: error for volume, error in zip(volumes, decided, strict=True) if isinstance(error, VolumeError)
        }
        failures = [
            str(error) if isinstance(error, MountFailed) else set_up_failed(name, error)
            for name, error in errors.items()
            if not isinstance(error, NotProcessed)
        ]
        if waiting := {name: str(error) for name, error in errors.items() if isinstance(error, NotProcessed)}:
            failures.append(not_processed(list(errors), list(waiting), list(waiting.values())))
        if steps:
            failures += await thread_to_completion(self._setup.apply, pod.uid, steps)
        if sources := [source for source in decided if isinstance(source, CsiSource)]:
            failures += await self._set_up_csi(pod, sources, running=running)
        if failures:
            raise VolumesNotReady(*failures)

    async def _set_up_csi(self, pod: Pod, sources: Sequence[CsiSource], *, running: bool) -> list[str]:
        """Returns the failures, as messages for the pod's events."""
        if self._csi is None:
            return [set_up_failed(source.name, "this kubelet has no CSI") for source in sources]
        results = await asyncio.gather(
            *(self._csi.set_up(pod, source, running=running) for source in sources), return_exceptions=True
        )
        for result in results:
            if result is not None and not isinstance(result, VolumeError):
                raise result
        failures = [str(result) for result in results if result is not None]
        if failures:
            self._csi_failed.add(pod.uid)
        else:
            self._csi_failed.discard(pod.uid)
        return failures

    async def _plan(self, pod: Pod, volume: Volume) -> Step | CsiSource | VolumeError | None:
        """The step for a volume, or the cause why there is none; None for one that needs none."""
        try:
            if is_external(volume):
                return await self._plan_external(pod, volume) if is_used(pod, volume) else None
            if volume.image is not None:
                return None  # the runtime mounts it
            check_type(volume)
            if not has_contents(volume):
                return without_contents(self._paths, pod, volume, self._node())
            contents: Contents = await self._sources.contents(pod, volume)
            return with_contents(self._paths, pod, volume, contents)
        except VolumeError as error:
            return error

    async def _plan_external(self, pod: Pod, volume: Volume) -> Step | CsiSource:
        step: Step | CsiSource
        if volume.csi is not None:
            step = csi_sources.inline(pod, volume)
            mounted = csi_sources.mounted(self._paths, pod.uid, step)
        else:
            bound = await self._claims.bound(pod, volume)
            persistent.check_affinity(bound, self._node_object())
            if "csi" in bound.spec:
                step = csi_sources.of_volume(bound)
                mounted = csi_sources.mounted(self._paths, pod.uid, step)
            else:
                step, mounted = persistent.plan(self._paths, pod, bound)
        self._reserve(pod, volume, mounted)
        return step

    def _reserve(self, pod: Pod, volume: Volume, mounted: MountedVolume) -> None:
        """From now on the volume is the pod's, until the pod is removed. Raises MountFailed if it may be used by one
        pod only and another has it."""
        if mounted.once_by_one_pod and any(
            other.name == mounted.name
            for uid, volumes in self._mounted.items()
            if uid != pod.uid
            for other in volumes.values()
        ):
            reason = "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
            raise MountFailed("MountVolume.SetUp failed", mounted.name, reason)
        self._mounted.setdefault(pod.uid, {})[volume.name] = mounted

    async def _mount(
        self, pod: Pod, container: Container, index: int, mount: VolumeMount, volume: Volume, env: Mapping[str, str]
    ) -> pb.Mount:
        try:
            read_only = False
            if is_external(volume):
                mounted = await self._persistent_volume(pod, volume)
                path, read_only = mounted.path, mounted.read_only
            else:
                path = self._paths.volume(pod.uid, volume)
            sub_path = container_mounts.sub_path(mount, env)
            cri_mount = container_mounts.cri_mount(
                mount, volume, str(path), recursive=self._recursive_read_only(), read_only=read_only
            )
            if sub_path:
                target = self._paths.subpath(pod.uid, volume.name, container.name, index)
                await thread_to_completion(subpaths.bind, path, sub_path, target, self._mounts)
                cri_mount.host_path = str(target)
        except VolumeError as error:
            what = "prepare subPath for" if mount.sub_path or mount.sub_path_expr else "prepare"
            message = f'failed to {what} volumeMount "{mount.name}" of container "{container.name}": {error}'
            raise VolumesNotReady(message) from error
        return cri_mount

    def _image_mount(
        self, container: Container, mount: VolumeMount, image: pb.ImageSpec, env: Mapping[str, str]
    ) -> pb.Mount:
        try:
            return container_mounts.image_mount(mount, image, container_mounts.sub_path(mount, env))
        except VolumeError as error:
            message = (
                f'failed to prepare subPath for volumeMount "{mount.name}" of container "{container.name}": {error}'
            )
            raise VolumesNotReady(message) from error

    async def _persistent_volume(self, pod: Pod, volume: Volume) -> MountedVolume:
        """A volume that no container used when the pod started is set up now: an ephemeral container mounts it."""
        if volume.name not in self._mounted.get(pod.uid, {}):
            await self._set_up(pod, [volume])
        try:
            return self._mounted[pod.uid][volume.name]
        except KeyError:
            raise VolumeError("it is not set up") from None
