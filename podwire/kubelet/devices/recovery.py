"""Recovers which devices pods hold after a restart: from the checkpoint, or from the runtime where that is damaged."""

import asyncio
import logging
from collections.abc import Sequence

from podwire.kubelet.devices.manager import DeviceManager
from podwire.kubelet.devices.records import ANNOTATION, AllocatedDevices, PodDevices, read_annotation
from podwire.kubelet.pods.observed import NAME, NAMESPACE, UID
from podwire.kubelet.ports import Cri
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)

ASK_SECONDS, PAUSE_SECONDS = 10.0, 0.5
REST = ""
"""In place of a container's name: what its pod has, and no container that was made."""


class UnknownDevices(Exception):
    """The runtime has the pod, and nobody knows with which devices."""


def recovered(uid: str, sandboxes: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> PodDevices | None:
    """None for a pod of which the runtime has nothing, so that nothing uses its devices. Unknown."""
    if not sandboxes:
        return None
    newest = max(sandboxes, key=lambda each: (each.metadata.attempt, each.created_at))
    told = read_annotation(newest.annotations.get(ANNOTATION, ""))
    if told is None:
        raise UnknownDevices(f"sandbox {newest.id} does not say which devices it has")
    made: dict[str, dict[str, AllocatedDevices]] = {}
    rest = {resource: set(ids) for resource, ids in told.items()}
    for each in sorted(containers, key=lambda each: (each.metadata.attempt, each.created_at)):
        for resource, ids in (read_annotation(each.annotations.get(ANNOTATION, "")) or {}).items():
            made.setdefault(each.metadata.name, {})[resource] = AllocatedDevices(ids=tuple(ids))
            rest.setdefault(resource, set()).difference_update(ids)
    left = {resource: AllocatedDevices(ids=tuple(sorted(ids))) for resource, ids in rest.items() if ids}
    return PodDevices(
        uid=uid,
        namespace=newest.labels.get(NAMESPACE, newest.metadata.namespace),
        name=newest.labels.get(NAME, newest.metadata.name),
        containers={**made, **({REST: left} if left else {})},
    )


async def restore(manager: DeviceManager, cri: Cri) -> None:
    """Have the manager know everything; waits for the runtime if that has to be asked."""
    for uid in await asyncio.to_thread(manager.load):
        await _recover(manager, cri, uid)
    manager.ready()


async def _recover(manager: DeviceManager, cri: Cri, uid: str) -> None:
    while True:
        try:
            record = recovered(uid, *await _known(cri, uid))
        except UnknownDevices as error:
            manager.block(uid, f"the record of pod {uid} is damaged, and {error}")
            return
        except RpcError as error:
            log.info("runtime does not tell which devices pods have", extra={"why": str(error)})
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            await asyncio.to_thread(manager.recover, uid, record)
            log.warning("devices of a pod recovered", extra={"uid": uid, "found": record is not None})
            return


async def _known(cri: Cri, uid: str) -> tuple[list[pb.PodSandbox], list[pb.Container]]:
    sandboxes, containers = pb.ListPodSandboxRequest(), pb.ListContainersRequest()
    sandboxes.filter.label_selector[UID] = containers.filter.label_selector[UID] = uid
    there = await cri.call(methods.LIST_POD_SANDBOX, sandboxes, timeout=ASK_SECONDS)
    inside = await cri.call(methods.LIST_CONTAINERS, containers, timeout=ASK_SECONDS)
    return list(there.items), list(inside.containers)
