"""Records events when the runtime's CNI CHECK of a pod's network fails, and when it succeeds again.

CRI has no field for the result, and a sandbox status must repeat its annotations as they were given, so the runtime
puts it into the `info` of a verbose PodSandboxStatus, as `networkCheck`. It asks the kubelet to look by a CREATED event
for a sandbox that exists already. The stock kubelet takes that for a late event; other runtimes have no such `info`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

import msgspec

from podwire.kubelet.pods.limits import RuntimeLimits
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


class CheckResult(msgspec.Struct, frozen=True):
    """Result of the last CHECK."""

    state: str
    message: str = ""


def read(info: str) -> CheckResult | None:
    """None if it cannot be read: another runtime may use the same key."""
    try:
        return msgspec.json.decode(info, type=CheckResult)
    except msgspec.MsgspecError:
        return None


def event(result: CheckResult, before: str | None) -> tuple[str, str, str] | None:
    """Type, reason and message of the event; None when nothing changed. `before` is the failure recorded last."""
    if result.state == "failed":
        message = result.message or "CHECK of the pod's network fails"
        return None if message == before else (WARNING, FAILED, message)
    return None if before is None else (NORMAL, RECOVERED, "The pod's network is as it was made again")


class NetworkChecks:
    """Asks the runtime for one sandbox after the other, apart from the pod workers."""

    def __init__(self, cri: Cri, recorder: Recorder, pod: Callable[[str], Pod | None], limits: RuntimeLimits) -> None:
        """`pod` returns the pod of a uid."""
        self._cri = cri
        self._recorder = recorder
        self._pod = pod
        self._limits = limits
        self._queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._failures: dict[str, dict[str, str]] = {}
        """By pod uid and sandbox: the failure that was recorded last."""
        self.pods_synced = asyncio.Event()

    def check(self, uid: str, sandbox: str) -> None:
        """The result for a sandbox may have changed."""
        self._queue.put_nowait((uid, sandbox))

    def check_all(self, pods: Mapping[str, ObservedPod]) -> None:
        """The runtime connected: results may have changed meanwhile."""
        self._failures = {uid: failures for uid, failures in self._failures.items() if uid in pods}
        for uid, observed in pods.items():
            sandbox = observed.sandbox
            if sandbox is not None and sandbox.ready and not sandbox.host_network:
                self.check(uid, sandbox.id)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.pods_synced.wait()
        while True:
            uid, sandbox = await self._queue.get()
            request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox, verbose=True)
            try:
                response = await self._cri.call(methods.POD_SANDBOX_STATUS, request, timeout=self._limits.call)
            except (
                RpcError
            ) as error:  # the sandbox is gone, or the runtime is, and then all are checked when it is back
                log.debug("cannot read network check", extra={"sandbox": sandbox, "error": str(error)})
                continue
            self._record(uid, sandbox, read(response.info.get(INFO, "")))

    def _record(self, uid: str, sandbox: str, result: CheckResult | None) -> None:
        pod = self._pod(uid)
        if pod is None:
            self._failures.pop(uid, None)
            return
        change = None if result is None else event(result, self._failures.get(uid, {}).get(sandbox))
        if change is None:
            return
        self._recorder.tell(pod, *change)
        for gone in [known for known in self._failures if self._pod(known) is None]:
            del self._failures[gone]
        self._failures[uid] = {sandbox: change[2]} if change[1] == FAILED else {}
