"""Tells the API server how pods are: the newest status of each, one request at a time, only what changed."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from podwire.failpoints import declare, failpoint
from podwire.kubelet.pods.container_status import State
from podwire.kubelet.pods.status import changes
from podwire.kubelet.ports import Api
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import ClientError, PatchType
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

PODS = Kind(group="", version="v1", resource="pods", kind="Pod", namespaced=True)
ENDS = ("Succeeded", "Failed")
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
STARTING = ("ContainerCreating", "PodInitializing")
MANNERS = 0.15
"""Seconds until it is told that a pod is about to start: most run by then, and that is told at once."""

SENT = declare("kubelet.status-sent", "the API server has a pod's status; nobody here has noted it yet")


@dataclass(slots=True)
class _Sheet:
    """One pod: what the API has, what it should have."""

    pod: Pod
    told: State
    version: int
    wanted: State | None = None
    sent: State | None = None
    """What was wanted when it was sent last."""
    kept: State | None = None
    """What the API made of that."""
    sending: bool = False
    pressing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is more to tell than that the pod is about to start."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def patch(self) -> State:
        """What is to be sent. What the API keeps in other words than ours is said once, not for ever."""
        if self.wanted is None or (self.wanted == self.sent and self.told == self.kept):
            return {}
        return {} if self.overruled else changes(self.told, self.wanted)

    @property
    def overruled(self) -> bool:
        """Somebody else has ended the pod, and nothing leads back from there."""
        return self.told.get("phase") in ENDS and self.wanted is not None and self.wanted.get("phase") not in ENDS

    @property
    def latest(self) -> State:
        if self.wanted is None:
            return self.told
        merged = {**self.told, **self.wanted, "conditions": _all_conditions(self.told, self.wanted)}
        if self.overruled:
            merged |= {name: self.told[name] for name in ("phase", "reason", "message") if name in self.told}
        return merged

    def saw(self, status: State, version: int) -> None:
        """An echo of what was overtaken since is nothing new."""
        if version >= self.version:
            self.told, self.version = status, version


class StatusManager:
    """A status that is overtaken before it was sent is never sent."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._sheets: dict[str, _Sheet] = {}
        self._group: asyncio.TaskGroup | None = None

    def saw(self, pod: Pod, object_: Object) -> None:
        """What the API has, by a watch."""
        status, version = dict(object_.get("status") or {}), _version(pod.metadata.resource_version)
        sheet = self._sheets.get(pod.uid)
        if sheet is None:
            self._sheets[pod.uid] = _Sheet(pod, status, version)
        else:
            sheet.saw(status, version)
            self._begin(sheet)

    def latest(self, uid: str) -> State:
        """The status as it is, or is about to be."""
        sheet = self._sheets.get(uid)
        return {} if sheet is None else sheet.latest

    def report(self, pod: Pod, status: State) -> None:
        """Have this sent; never waits."""
        sheet = self._sheets.get(pod.uid)
        if sheet is not None:
            sheet.wanted = status
            if not _starts(status):
                sheet.pressing.set()
            self._begin(sheet)

    async def sent(self, uid: str) -> None:
        """Wait until nothing is on the way."""
        sheet = self._sheets.get(uid)
        if sheet is not None and sheet.sending:
            await sheet.done.wait()

    def forget(self, uid: str) -> None:
        self._sheets.pop(uid, None)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None  # a group that ends takes nobody new

    def _begin(self, sheet: _Sheet) -> None:
        if self._group is not None and not sheet.sending and sheet.patch:
            sheet.sending = True
            sheet.done.clear()
            self._group.create_task(self._send(sheet), name=f"report {sheet.pod.ref}")

    async def _send(self, sheet: _Sheet) -> None:
        """Until the API has what is wanted, and the pod is still ours."""
        pause = FIRST_PAUSE
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MANNERS):
                    await sheet.pressing.wait()
            while (patch := sheet.patch) and self._sheets.get(sheet.pod.uid) is sheet:
                try:
                    await self._patch(sheet, patch)
                    pause = FIRST_PAUSE
                except (ClientError, ApiError) as error:
                    if isinstance(error, ApiError) and not _may_pass(error):
                        _tell(sheet, error)
                        return
                    log.info("status not sent", extra={"pod": sheet.pod.ref, "why": str(error)})
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
        finally:
            sheet.sending = False
            sheet.done.set()

    async def _patch(self, sheet: _Sheet, patch: State) -> None:
        meta, wanted = sheet.pod.metadata, sheet.wanted
        body = {"metadata": {"uid": meta.uid}, "status": patch}
        now = await self._api.patch(
            PODS, meta.name, body, meta.namespace, type_=PatchType.STRATEGIC, subresource="status"
        )
        failpoint(SENT)
        kept = dict(now.get("status") or {})
        sheet.saw(kept, _version(now["metadata"].get("resourceVersion", "")))
        sheet.sent, sheet.kept = wanted, kept


def _starts(status: State) -> bool:
    """Whether the pod is about to start, and nothing has gone wrong so far."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    waiting = [each["state"].get("waiting") or {} for each in containers]
    return status.get("phase") == "Pending" and all(
        each.get("reason") in STARTING and not each.get("message") for each in waiting
    )


def _may_pass(error: ApiError) -> bool:
    """Whether the same request may succeed later: it is the server's trouble, not ours."""
    return error.code >= 500 or error.code == 429


def _tell(sheet: _Sheet, error: ApiError) -> None:
    if error.code not in (404, 409):  # gone, or another pod of that name by now
        log.warning("status refused", extra={"pod": sheet.pod.ref, "why": error.message})


def _all_conditions(told: State, wanted: State) -> list[State]:
    """Ours as they will be, those of others as they are."""
    ours = wanted.get("conditions") or []
    types = {each["type"] for each in ours}
    return [*ours, *(each for each in told.get("conditions") or () if each["type"] not in types)]


def _version(text: str) -> int:
    return int(text) if text.isdecimal() else 0
