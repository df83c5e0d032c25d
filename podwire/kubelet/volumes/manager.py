"""The volume manager: sets volumes up, mounts them into containers, keeps them up to date, removes them."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from podwire.interfaces import Clock
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.referenced_objects import ReferencedObjects
from podwire.kubelet.volumes import container_mounts, subpaths
from podwire.kubelet.volumes.contents import Contents
from podwire.kubelet.volumes.errors import VolumeError, VolumesNotReady, set_up_failed
from podwire.kubelet.volumes.paths import VolumePaths
from podwire.kubelet.volumes.ports import Mounts
from podwire.kubelet.volumes.setup import VolumeSetup
from podwire.kubelet.volumes.sources import Sources
from podwire.kubelet.volumes.steps import Step, check_type, has_contents, with_contents, without_contents
from podwire.kubelet.volumes.tokens import Tokens
from podwire.objects.containers import Container, VolumeMount
from podwire.objects.pods import Pod
from podwire.objects.volumes import Volume
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.k8sapi.client_side import Client
from podwire.tasks.keyed_locks import KeyedLocks
from podwire.tasks.uncancelled import thread_to_completion

log = logging.getLogger(__name__)

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
        recursive_read_only: Callable[[], bool] = lambda: False,
    ) -> None:
        """`recursive_read_only`: whether the runtime supports recursive read-only mounts."""
        self._paths = VolumePaths(root)
        self._setup = VolumeSetup(self._paths, mounts)
        self._mounts = mounts
        self._clock = clock
        self._node = node
        self._recursive_read_only = recursive_read_only
        self._tokens = Tokens(api, clock)
        self._sources = Sources(references, self._tokens, node)
        self._ready: dict[str, Pod] = {}
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
        """Update volumes to the present objects, labels and annotations; unchanged ones are not written."""
        async with self._locks.hold(pod.uid):
            if pod.uid in self._ready:
                self._ready[pod.uid] = pod
                await self._set_up(pod, [volume for volume in pod.spec.volumes if has_contents(volume)])
        self._tokens_changed.set()

    async def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> tuple[pb.Mount, ...]:
        """CRI mounts of a container's volumeMounts. Raises VolumesNotReady."""
        volumes = {volume.name: volume for volume in pod.spec.volumes}
        mounts = []
        async with self._locks.hold(pod.uid):
            for index, mount in enumerate(container.volume_mounts):
                if mount.name not in volumes:
                    raise VolumesNotReady(
                        f'cannot find volume "{mount.name}" to mount into container "{container.name}"'
                    )
                mounts.append(await self._mount(pod, container, index, mount, volumes[mount.name], env))
        return tuple(mounts)

    async def remove(self, uid: str) -> None:
        """Unmount and delete everything of a pod, including leftovers of a killed kubelet. Raises OSError."""
        async with self._locks.hold(uid):
            self._ready.pop(uid, None)
            self._tokens.forget(uid)
            await thread_to_completion(self._setup.remove, uid)

    def uids(self) -> set[str]:
        """Pods that have a directory. Other names, such as lost+found, are none of pods."""
        try:
            return {path.name for path in self._paths.pods.iterdir() if _UID.fullmatch(path.name)}
        except FileNotFoundError:
            return set()

    async def run(self) -> None:
        """Replace tokens in time, until cancelled."""
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

    async def _set_up(self, pod: Pod, volumes: Sequence[Volume]) -> None:
        decided = await asyncio.gather(*(self._plan(pod, volume) for volume in volumes))
        steps = [step for step in decided if not isinstance(step, VolumeError)]
        failures = [
            set_up_failed(volume.name, step)
            for volume, step in zip(volumes, decided, strict=True)
            if isinstance(step, VolumeError)
        ]
        if steps:
            failures += await thread_to_completion(self._setup.apply, pod.uid, steps)
        if failures:
            raise VolumesNotReady(*failures)

    async def _plan(self, pod: Pod, volume: Volume) -> Step | VolumeError:
        try:
            check_type(volume)
            if not has_contents(volume):
                return without_contents(self._paths, pod, volume, self._node())
            contents: Contents = await self._sources.contents(pod, volume)
            return with_contents(self._paths, pod, volume, contents)
        except VolumeError as error:
            return error

    async def _mount(
        self, pod: Pod, container: Container, index: int, mount: VolumeMount, volume: Volume, env: Mapping[str, str]
    ) -> pb.Mount:
        try:
            path = self._paths.volume(pod.uid, volume)
            sub_path = container_mounts.sub_path(mount, env)
            cri_mount = container_mounts.cri_mount(mount, volume, str(path), recursive=self._recursive_read_only())
            if sub_path:
                target = self._paths.subpath(pod.uid, volume.name, container.name, index)
                await thread_to_completion(subpaths.bind, path, sub_path, target, self._mounts)
                cri_mount.host_path = str(target)
        except VolumeError as error:
            what = "prepare subPath for" if mount.sub_path or mount.sub_path_expr else "prepare"
            message = f'failed to {what} volumeMount "{mount.name}" of container "{container.name}": {error}'
            raise VolumesNotReady(message) from error
        return cri_mount
