"""Writes the volumes of a pod before it is bound, and waits until they are bound (Reserve and PreBind of upstream)."""

import asyncio
import logging
from collections.abc import Callable

from podwire.failpoints import declare, failpoint
from podwire.objects import persistent_volumes as storage
from podwire.objects.nodes import Node
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Client
from podwire.protocols.k8sapi.status import ApiError
from podwire.scheduler.queue import Limits
from podwire.scheduler.volumes.cache import Object, Ref, VolumeCache, VolumeDecision, ref_of, with_node

log = logging.getLogger("podwire.scheduler")

WRITTEN = declare("scheduler.volumes-written", "a pod's volumes are chosen or requested; they are not all bound yet")


class VolumesNotBound(Exception):
    """The volumes of a pod were not bound; says why."""


class VolumeWriter:
    def __init__(
        self, api: Client, cache: VolumeCache, limits: Limits, find_node: Callable[[str], Node | None]
    ) -> None:
        self._api = api
        self._cache = cache
        self._limits = limits
        self._find_node = find_node
        self._deleted: set[str] = set()
        self._waiting: set[str] = set()

    def pod_deleted(self, uid: str) -> None:
        """Ends the waiting for the volumes of a pod."""
        if uid in self._waiting:
            self._deleted.add(uid)
            self._cache.notify()

    async def bind(self, pod: Pod, node: str, decision: VolumeDecision) -> None:
        """Returns when all volumes are bound. Raises VolumesNotBound, ApiError, ClientError."""
        self._waiting.add(pod.uid)
        try:
            written = await self._write(node, decision)
            failpoint(WRITTEN)
            async with asyncio.timeout(self._limits.volume_binding):
                while not self._is_done(pod, node, written):
                    await self._cache.changed.wait()
        except TimeoutError:
            raise VolumesNotBound("binding volumes: context deadline exceeded") from None
        finally:
            self._waiting.discard(pod.uid)
            self._deleted.discard(pod.uid)
            self._cache.forget(pod.uid)

    async def _write(self, node: str, decision: VolumeDecision) -> dict[Ref, str]:
        """Returns the claims to wait for, and the resourceVersion of those that were written."""
        versions: dict[Ref, str] = {}
        for volume, claim in decision.bindings:
            if (bound := storage.bound_volume(volume, claim)) is not None:
                await self._replace(bound)
            versions[ref_of(claim)] = ""
        for claim in decision.provisions:
            if storage.annotations(claim).get(storage.SELECTED_NODE) == node:
                versions[ref_of(claim)] = claim["metadata"]["resourceVersion"]
            else:
                written = await self._replace(with_node(claim, node))
                versions[ref_of(claim)] = written["metadata"]["resourceVersion"]
        return versions

    async def _replace(self, object_: dict[str, object]) -> Object:
        """A conflict means that the object has changed since the decision: the pod is decided on again."""
        try:
            return await self._api.replace(object_)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            raise VolumesNotBound(error.message) from error

    def _is_done(self, pod: Pod, node_name: str, versions: dict[Ref, str]) -> bool:
        """Returns whether all claims are bound. Raises VolumesNotBound if they never will be, on this node."""
        if pod.uid in self._deleted:
            raise VolumesNotBound("binding volumes: pod does not exist any more")
        if (node := self._find_node(node_name)) is None:
            raise VolumesNotBound(f'binding volumes: failed to get node "{node_name}"')
        return all(self._is_bound(ref, version, node) for ref, version in versions.items())

    def _is_bound(self, ref: Ref, version: str, node: Node) -> bool:
        claim = self._cache.claims.get(ref)
        if claim is None:
            raise VolumesNotBound(f'binding volumes: persistentvolumeclaim "{ref[1]}" not found')
        if version and _older(claim["metadata"]["resourceVersion"], version):
            return False
        volume = self._cache.volumes.get(claim["spec"].get("volumeName") or "")
        if volume is not None and not storage.is_reachable(volume, node):
            why = f'pv "{volume["metadata"]["name"]}" node affinity doesn\'t match node "{node.name}"'
            raise VolumesNotBound(f"binding volumes: {why}")
        if storage.is_fully_bound(claim):
            return volume is not None
        if version and storage.annotations(claim).get(storage.SELECTED_NODE) != node.name:
            raise VolumesNotBound(f'binding volumes: provisioning failed for PVC "{ref[1]}"')
        return False


def _older(version: str, wanted: str) -> bool:
    return version.isdigit() and wanted.isdigit() and int(version) < int(wanted)
