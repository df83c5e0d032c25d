"""Static pods: runs what a directory of manifests has, and keeps a mirror of each in the API.

The files are the truth. A new file is a new pod, a changed one is another pod that starts when the old one has ended, a
removed one ends its pod. A file that cannot be read as a pod is reported, and the pod that it was before goes on; other
files are not affected. None of this needs an API server.

A mirror is a Pod object by which people see a static pod. It has another uid; the pod's own uid is in its annotation
kubernetes.io/config.mirror. Mirrors that are deleted or do not match are deleted for good and created again, and those
without a static pod are deleted. `kubectl delete` of a mirror therefore does not end the pod.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from podwire.interfaces import Clock
from podwire.kubelet.node.agent import NodeAgent
from podwire.kubelet.pods.pod_workers import PodWorkers
from podwire.kubelet.pods.status_manager import PODS, StatusManager
from podwire.kubelet.static.manifests import MIRROR, read_directory
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.client_side import Client, ClientError
from podwire.protocols.k8sapi.client_side.events import WARNING
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object
from podwire.tasks.backoff import Pauses

log = logging.getLogger(__name__)

REASON = "InvalidStaticPod"
Name = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticLimits:
    """Intervals in seconds."""

    poll: float = 20.0
    """Between two looks at the directory, in case no event reports a change (some network file systems)."""
    backoff: tuple[float, float] = (0.5, 30.0)
    """First and longest pause until a failed write of a mirror is repeated."""


class StaticPods:
    """`present` and `absent` are called for mirrors that the API has; `ended` for every pod whose worker has ended."""

    def __init__(
        self,
        directory: Path | None,
        changes: Callable[[], AsyncIterator[None]],
        api: Client,
        clock: Clock,
        node: NodeAgent,
        workers: PodWorkers,
        statuses: StatusManager,
        limits: StaticLimits,
    ) -> None:
        """`changes` yields when something in the directory may have changed."""
        self._directory = directory
        self._changes = changes
        self._api = api
        self._clock = clock
        self._node = node
        self._workers = workers
        self._statuses = statuses
        self._limits = limits
        self._files: dict[str, Object] = {}
        """By path: the pods that the directory has."""
        self._errors: dict[str, str] = {}
        self._running: dict[str, Object] = {}
        """By uid: pods that have a worker; deleted ones have a deletionTimestamp."""
        self._mirrors: dict[Name, Object] = {}
        self._mirrors_synced = False
        self._mirrors_changed = asyncio.Event()
        self.loaded = asyncio.Event()
        """The workers know all static pods."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_directory(), name="static pod manifests")
            group.create_task(self._keep_mirrors(), name="mirror pods")

    async def _follow_directory(self) -> None:
        if self._directory is None:
            self.loaded.set()
            return
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._note_changes(changed), name="changes of manifests")
            while True:
                changed.clear()
                await self._load(self._directory)
                self.loaded.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._limits.poll):
                        await changed.wait()

    async def _note_changes(self, changed: asyncio.Event) -> None:
        async for _ in self._changes():
            changed.set()

    async def _load(self, directory: Path) -> None:
        try:
            found = await asyncio.to_thread(read_directory, directory, self._node.name)
        except FileNotFoundError:
            self._files.clear()
            self._apply()
            return
        except OSError as error:
            log.warning("cannot read static pod directory", extra={"path": str(directory), "error": str(error)})
            return
        for path, problem in found.errors.items():
            if self._errors.get(path) != problem:
                log.warning("static pod manifest is invalid", extra={"path": path, "error": problem})
                self._node.record(WARNING, REASON, f"{path}: {problem}")
        self._errors = found.errors
        kept = {path: pod for path, pod in self._files.items() if path in found.errors}
        self._files = {**kept, **found.pods}
        self._apply()

    def _apply(self) -> None:
        """End what no file has any more, and start what is new unless a pod of the same name has not ended yet."""
        wanted = {pod["metadata"]["uid"]: pod for pod in self._files.values()}
        for uid, pod in list(self._running.items()):
            if uid not in wanted and "deletionTimestamp" not in pod["metadata"]:
                grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
                end = {"deletionTimestamp": rfc3339(self._clock.wall()), "deletionGracePeriodSeconds": grace}
                self._running[uid] = {**pod, "metadata": {**pod["metadata"], **end}}
                self._present(uid)
        names = {_name(pod) for pod in self._running.values()}
        for uid, pod in wanted.items():
            if uid not in self._running and _name(pod) not in names:
                names.add(_name(pod))
                self._running[uid] = pod
                self._present(uid)
        self._mirrors_changed.set()

    def _present(self, uid: str) -> None:
        """The worker sees the static pod with the status that its mirror has."""
        pod = self._running[uid]
        mirror = self._mirrors.get(_name(pod))
        if mirror is not None and _mirrored(mirror) == uid and "deletionTimestamp" not in mirror["metadata"]:
            version = mirror["metadata"].get("resourceVersion", "")
            pod = {
                **pod,
                "metadata": {**pod["metadata"], "resourceVersion": version},
                "status": mirror.get("status") or {},
            }
            self._statuses.set_mirror(uid, mirror["metadata"]["uid"])
        else:
            self._statuses.set_mirror(uid, "")
        self._workers.present(pod)

    def ended(self, uid: str) -> None:
        """Nothing of a pod is left on the node."""
        if self._running.pop(uid, None) is not None:
            self._apply()

    def present(self, mirror: Object) -> None:
        self._mirrors[_name(mirror)] = mirror
        self._mirrors_changed.set()
        uid = _mirrored(mirror)
        if uid in self._running and _name(self._running[uid]) == _name(mirror):
            self._present(uid)

    def absent(self, mirror: Object) -> None:
        known = self._mirrors.get(_name(mirror))
        if known is not None and known["metadata"]["uid"] == mirror["metadata"]["uid"]:
            del self._mirrors[_name(mirror)]
            self._mirrors_changed.set()
            if (uid := _mirrored(mirror)) in self._running:
                self._present(uid)

    def mirrors_synced(self) -> None:
        """All mirrors that the API has were reported."""
        self._mirrors_synced = True
        self._mirrors_changed.set()

    async def _keep_mirrors(self) -> None:
        pauses = Pauses(*self._limits.backoff)
        await self.loaded.wait()
        while True:
            await self._mirrors_changed.wait()
            self._mirrors_changed.clear()
            if not self._mirrors_synced:
                continue
            try:
                await self._write_mirrors()
            except (ClientError, ApiError) as error:
                log.info("cannot write mirror pod", extra={"error": str(error)})
                await asyncio.sleep(pauses.next())
                self._mirrors_changed.set()
            else:
                pauses.reset()

    async def _write_mirrors(self) -> None:
        """Every mirror is tried; raises the last error."""
        failure: ClientError | ApiError | None = None
        living = {uid: pod for uid, pod in self._running.items() if "deletionTimestamp" not in pod["metadata"]}
        for mirror in list(self._mirrors.values()):
            meta, uid = mirror["metadata"], _mirrored(mirror)
            good = uid in living and _name(living[uid]) == _name(mirror) and "deletionTimestamp" not in meta
            if not good:
                try:
                    await self._api.delete(PODS, meta["name"], meta["namespace"], grace_seconds=0, uid=meta["uid"])
                except (ClientError, ApiError) as error:
                    if not (isinstance(error, ApiError) and error.code in (404, 409)):
                        failure = error
        for uid, pod in living.items():
            node = self._node.node
            if _name(pod) in self._mirrors or node is None:
                continue  # one that must go is created again when the API has reported its end
            try:
                await self._api.create(_mirror(pod, uid, self._node.name, node.metadata.uid))
            except (ClientError, ApiError) as error:
                if not (isinstance(error, ApiError) and error.code == 409):
                    failure = error
        if failure is not None:
            raise failure


def _mirror(pod: Object, uid: str, node: str, node_uid: str) -> Object:
    meta = {name: value for name, value in pod["metadata"].items() if name != "uid"}
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    annotations = {**meta["annotations"], MIRROR: uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "annotations": annotations, "ownerReferences": [owner]},
        "spec": pod["spec"],
    }


def is_mirror(object_: Object) -> bool:
    return MIRROR in (object_["metadata"].get("annotations") or {})


def _mirrored(mirror: Object) -> str:
    uid: str = (mirror["metadata"].get("annotations") or {}).get(MIRROR, "")
    return uid


def _name(object_: Object) -> Name:
    return object_["metadata"].get("namespace", ""), object_["metadata"]["name"]
