"""After a start: who holds which devices, from the disk, or from the runtime where the disk is damaged."""

import asyncio
import logging

from podwire.kubelet.devices.manager import DeviceManager
from podwire.kubelet.devices.recovery import Unknown, recovered
from podwire.kubelet.observed import UID
from podwire.kubelet.ports import Cri
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError

log = logging.getLogger(__name__)

ASK_SECONDS, PAUSE_SECONDS = 10.0, 0.5


async def restore(manager: DeviceManager, cri: Cri) -> None:
    """Have the manager know everything; waits for the runtime if that has to be asked."""
    for uid in await asyncio.to_thread(manager.load):
        await _recover(manager, cri, uid)
    manager.ready()


async def _recover(manager: DeviceManager, cri: Cri, uid: str) -> None:
    while True:
        try:
            record = recovered(uid, *await _known(cri, uid))
        except Unknown as error:
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
