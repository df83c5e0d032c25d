"""The volumes of the pods of this node: set up, shown to containers, kept up to date, removed."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from podwire.interfaces import Clock
from podwire.kubelet.config.fields import NodeFacts
from podwire.kubelet.ports import Api
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

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class VolumeManager:
    """One pod's calls follow each other; those of different pods do not wait for one another."""

    def __init__(
        self,
        root: Path,
        references: ReferencedObjects,
        api: Api,
        mounts: Mounts,
        clock: Clock,
        *,
        node: Callable[[], NodeFacts],
        recursive_read_only: Callable[[], bool] = lambda: False,
    ) -> None:
        """`recursive_read_only`: whether the runtime says that it can make mounts so."""
        self._places = VolumePaths(root)
        self._work = VolumeSetup(self._places, mounts)
        self._kernel = mounts
        self._clock = clock
        self._node = node
        self._recursive_read_only = recursive_read_only
        self._tokens = Tokens(api, clock)
        self._sources = Sources(references, self._tokens, node)
        self._ready: dict[str, Pod] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._woken = asyncio.Event()

    async def prepare(self, pod: Pod) -> None:
        """Set all volumes up; nothing happens when they are. NotReady names every one that could not be.

        1. Refuse what nobody can set up.  2. Ask for objects and tokens, all at once.  3. One visit to the disk.
        """
        async with self._turn(pod.uid):
            if pod.uid in self._ready:
                return
            await self._set_up(pod, pod.spec.volumes)
            self._ready[pod.uid] = pod
        self._woken.set()

    async def refresh(self, pod: Pod) -> None:
        """Show what objects, labels and annotations say now; nothing is written where that is shown already."""
        async with self._turn(pod.uid):
            if pod.uid in self._ready:
                self._ready[pod.uid] = pod
                await self._set_up(pod, [each for each in pod.spec.volumes if has_contents(each)])
        self._woken.set()

    async def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> tuple[pb.Mount, ...]:
        """What CRI is to mount for a container's volumeMounts. NotReady."""
        volumes = {each.name: each for each in pod.spec.volumes}
        made = []
        async with self._turn(pod.uid):
            for index, mount in enumerate(container.volume_mounts):
                if mount.name not in volumes:
                    raise VolumesNotReady(
                        f'cannot find volume "{mount.name}" to mount into container "{container.name}"'
                    )
                made.append(await self._mount(pod, container, index, mount, volumes[mount.name], env))
        return tuple(made)

    async def remove(self, uid: str) -> None:
        """Unmount and delete all that a pod has below the root, also what one left who was killed. OSError."""
        async with self._turn(uid):
            self._ready.pop(uid, None)
            self._tokens.forget(uid)
            await to_the_end(lambda: self._work.remove(uid))

    def left(self) -> set[str]:
        """The uids of pods that still have a directory."""
        try:
            return {each.name for each in self._places.pods.iterdir()}
        except FileNotFoundError:
            return set()

    async def run(self) -> None:
        """Replace tokens in time, until cancelled."""
        while True:
            self._woken.clear()
            due = self._tokens.next_due()
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock.monotonic())):
                    await self._woken.wait()
            except TimeoutError:
                pass
            for uid in self._tokens.due():
                await self._replace_tokens(uid)

    async def close(self) -> None:
        """Give back what belongs to no pod: the memory for secrets, once there are none. For a node that ends."""
        await to_the_end(self._work.close)

    async def _replace_tokens(self, uid: str) -> None:
        pod = self._ready.get(uid)
        if pod is None:
            self._tokens.forget(uid)  # its volumes never came to be; a later try asks anew
            return
        try:
            await self.refresh(pod)
        except VolumesNotReady as error:
            log.warning("token not replaced", extra={"pod": pod.ref, "why": str(error)})

    async def _set_up(self, pod: Pod, volumes: "tuple[Volume, ...] | list[Volume]") -> None:
        decided = await asyncio.gather(*(_caught(self._decide(pod, each)) for each in volumes))
        steps = [each for each in decided if not isinstance(each, Exception)]
        failures = [
            set_up_failed(volume.name, each)
            for volume, each in zip(volumes, decided, strict=True)
            if isinstance(each, Exception)
        ]
        if steps:
            failures += await to_the_end(lambda: self._work.do(pod.uid, steps))
        if failures:
            raise VolumesNotReady(*failures)

    async def _decide(self, pod: Pod, volume: Volume) -> Step:
        check_type(volume)
        if not has_contents(volume):
            return without_contents(self._places, pod, volume, self._node())
        contents: Contents = await self._sources.contents(pod, volume)
        return with_contents(self._places, pod, volume, contents)

    async def _mount(
        self, pod: Pod, container: Container, index: int, mount: VolumeMount, volume: Volume, env: Mapping[str, str]
    ) -> pb.Mount:
        try:
            where = self._places.volume(pod.uid, volume)
            part = container_mounts.sub_path(mount, env)
            made = container_mounts.cri_mount(mount, volume, str(where), recursive=self._recursive_read_only())
            if part:
                target = self._places.subpath(pod.uid, volume.name, container.name, index)
                await to_the_end(lambda: subpaths.bind(where, part, target, self._kernel))
                made.host_path = str(target)
        except VolumeError as error:
            what = "prepare subPath for" if mount.sub_path or mount.sub_path_expr else "prepare"
            told = f'failed to {what} volumeMount "{mount.name}" of container "{container.name}": {error}'
            raise VolumesNotReady(told) from error
        return made

    def _turn(self, uid: str) -> asyncio.Lock:
        """Held by whoever uses it, and gone with the last."""
        turn = self._turns.get(uid)
        if turn is None:
            turn = self._turns[uid] = asyncio.Lock()
        return turn


async def _caught(work: Coroutine[Any, Any, Result]) -> Result | VolumeError:
    try:
        return await work
    except VolumeError as error:
        return error


async def to_the_end(work: Callable[[], Result]) -> Result:
    """In a worker thread. Threads cannot be stopped: who is cancelled waits, so that nothing happens behind the next
    one's back."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
