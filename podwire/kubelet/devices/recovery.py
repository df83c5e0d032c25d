"""Recovers which devices pods hold after a restart: from the checkpoint, or from the runtime where that is damaged."""

import asyncio
import logging
from collections.abc import Sequence

from podwire.kubelet.devices.manager import DeviceManager
from podwire.kubelet.devices.pod_devices import ANNOTATION, AllocatedDevices, PodDevices, read_annotation
from podwire.kubelet.pods.limits import RuntimeLimits
from podwire.kubelet.pods.observed import NAME, NAMESPACE, UID
from podwire.kubelet.ports import Cri
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)

REST = ""
"""Stands for a container's name: devices of the pod that belong to none of its created containers."""


class UnknownDevices(Exception):
    """The runtime has the pod, and its devices are unknown."""


def recovered(uid: str, sandboxes: Sequence[pb.PodSandbox], containers: Sequence[pb.Container]) -> PodDevices | None:
    """Devices by the annotations of sandbox and containers; None if the runtime has nothing of the pod, so that nothing
    uses its devices. Pure. Raises UnknownDevices."""
    if not sandboxes:
        return None
    newest = max(sandboxes, key=_age)
    held = read_annotation(newest.annotations.get(ANNOTATION, ""))
    if held is None:
        raise UnknownDevices(f"sandbox {newest.id} has no annotation of devices")
    made: dict[str, dict[str, AllocatedDevices]] = {}
    rest = {resource: set(ids) for resource, ids in held.items()}
    for container in sorted(containers, key=_age):
        for resource, ids in (read_annotation(container.annotations.get(ANNOTATION, "")) or {}).items():
            made.setdefault(container.metadata.name, {})[resource] = AllocatedDevices(ids=tuple(ids))
            rest.setdefault(resource, set()).difference_update(ids)
    left = {resource: AllocatedDevices(ids=tuple(sorted(ids))) for resource, ids in rest.items() if ids}
    return PodDevices(
        uid=uid,
        namespace=newest.labels.get(NAMESPACE, newest.metadata.namespace),
        name=newest.labels.get(NAME, newest.metadata.name),
        containers={**made, **({REST: left} if left else {})},
    )


async def restore(manager: DeviceManager, cri: Cri, limits: RuntimeLimits) -> None:
    """Recover damaged records; waits for the runtime if it has to be asked."""
    for uid in manager.damaged:
        await _recover(manager, cri, uid, limits)
    manager.ready()


async def _recover(manager: DeviceManager, cri: Cri, uid: str, limits: RuntimeLimits) -> None:
    while True:
        try:
            record = recovered(uid, *await _known(cri, uid, limits.call))
        except UnknownDevices as error:
            manager.block(uid, f"the record of pod {uid} is damaged, and {error}")
            return
        except RpcError as error:
            log.info("cannot ask runtime for devices of pods", extra={"uid": uid, "error": str(error)})
            await asyncio.sleep(limits.reconnect[1])
        else:
            await asyncio.to_thread(manager.recover, uid, record)
            log.warning("recovered devices of pod", extra={"uid": uid, "in_use": record is not None})
            return


async def _known(cri: Cri, uid: str, seconds: float) -> tuple[list[pb.PodSandbox], list[pb.Container]]:
    sandboxes, containers = pb.ListPodSandboxRequest(), pb.ListContainersRequest()
    sandboxes.filter.label_selector[UID] = containers.filter.label_selector[UID] = uid
    listed = await cri.call(methods.LIST_POD_SANDBOX, sandboxes, timeout=seconds)
    inside = await cri.call(methods.LIST_CONTAINERS, containers, timeout=seconds)
    return list(listed.items), list(inside.containers)


def _age(member: pb.PodSandbox | pb.Container) -> tuple[int, int]:
    return member.metadata.attempt, member.created_at
