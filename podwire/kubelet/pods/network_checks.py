"""Tells people when the runtime finds that a pod's network is not as it was made, and when it is again.

CRI has no word for it, and a status must repeat a sandbox's annotations as they were given, so it is in what a runtime
adds to a verbose status: `networkCheck` in its `info`. The hint to ask is an event CREATED for a sandbox that was seen
already. A kubelet that knows nothing of this takes that event for a late one, and a runtime that knows nothing of it
has no such `info`; neither is harmed.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from podwire.kubelet.pods.observed import ObservedPod
from podwire.kubelet.ports import Cri
from podwire.objects.pods import Pod
from podwire.protocols.cri import cri_pb2 as pb
from podwire.protocols.cri import methods
from podwire.protocols.grpc_status import RpcError
from podwire.protocols.k8sapi.client_side.events import NORMAL, WARNING
from podwire.protocols.k8sapi.client_side.recorder import Recorder

log = logging.getLogger(__name__)

INFO = "networkCheck"
FAILED, RECOVERED = "NetworkCheckFailed", "NetworkCheckRecovered"
ASK_SECONDS = 10.0


class Told(msgspec.Struct, frozen=True):
    """What a runtime tells of the last CHECK."""

    state: str
    message: str = ""


def read(info: str) -> Told | None:
    """None for what is not understood: another runtime may use the same word."""
    try:
        return msgspec.json.decode(info, type=Told)
    except msgspec.MsgspecError:
        return None


def event(told: Told, before: str | None) -> tuple[str, str, str] | None:
    """The event's type, reason and message; None when there is nothing new. `before` is the failure told last."""
    if told.state == "failed":
        message = told.message or "CHECK of the pod's network fails"
        return None if message == before else (WARNING, FAILED, message)
    return None if before is None else (NORMAL, RECOVERED, "The pod's network is as it was made again")


class NetworkChecks:
    """Asks one after the other, out of the way of the pods' workers."""

    def __init__(self, cri: Cri, recorder: Recorder, pod: Callable[[str], Pod | None]) -> None:
        """`pod` gives the pod of a uid."""
        self._cri = cri
        self._recorder = recorder
        self._pod = pod
        self._asked: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._failed: dict[str, dict[str, str]] = {}
        """The failure that was told last of each sandbox, by the uid of its pod."""
        self.pods_known = asyncio.Event()

    def look(self, uid: str, sandbox: str) -> None:
        """Something may have changed."""
        self._asked.put_nowait((uid, sandbox))

    def look_at_all(self, pods: dict[str, ObservedPod]) -> None:
        """The runtime came, and may have found something meanwhile."""
        self._failed = {uid: failed for uid, failed in self._failed.items() if uid in pods}
        for uid, observed in pods.items():
            sandbox = observed.sandbox
            if sandbox is not None and sandbox.ready and not sandbox.host_network:
                self.look(uid, sandbox.id)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.pods_known.wait()
        while True:
            uid, sandbox = await self._asked.get()
            request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox, verbose=True)
            try:
                answer = await self._cri.call(methods.POD_SANDBOX_STATUS, request, timeout=ASK_SECONDS)
            except RpcError as error:  # it is gone, or the runtime is; when that comes back, all are looked at
                log.debug("the network check is not known", extra={"sandbox": sandbox, "why": str(error)})
                continue
            self._tell(uid, sandbox, read(answer.info.get(INFO, "")))

    def _tell(self, uid: str, sandbox: str, told: Told | None) -> None:
        pod = self._pod(uid)
        if pod is None:
            self._failed.pop(uid, None)
            return
        news = None if told is None else event(told, self._failed.get(uid, {}).get(sandbox))
        if news is None:
            return
        self._recorder.tell(pod, *news)
        self._failed[uid] = {sandbox: news[2]} if news[1] == FAILED else {}
