"""Tells the API server how pods are: the newest status of each, one request at a time, only what changed."""

import asyncio
import logging
from dataclasses import dataclass, field

from podwire.kubelet.container_status import State
from podwire.kubelet.ports import Api
from podwire.kubelet.status import changes
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import ClientError, PatchType
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

PODS = Kind(group="", version="v1", resource="pods", kind="Pod", namespaced=True)
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0


@dataclass(slots=True)
class _Sheet:
    """One pod: what the API has, what it should have."""

    pod: Pod
    told: State
    version: int
    wanted: State | None = None
    sent: State | None = None
    sending: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)


class Reports:
    """A status that is overtaken before it was sent is never sent."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._sheets: dict[str, _Sheet] = {}
        self._group: asyncio.TaskGroup | None = None

    def saw(self, pod: Pod, object_: Object) -> None:
        """What the API has, by a watch; an echo of what was overtaken since is nothing new."""
        version = _version(pod.metadata.resource_version)
        sheet = self._sheets.get(pod.uid)
        if sheet is None:
            self._sheets[pod.uid] = _Sheet(pod, dict(object_.get("status") or {}), version)
        elif version > sheet.version and not sheet.sending:
            sheet.told, sheet.version = dict(object_.get("status") or {}), version

    def latest(self, uid: str) -> State:
        """The status as it is, or is about to be."""
        sheet = self._sheets.get(uid)
        if sheet is None:
            return {}
        return {**sheet.told, **(sheet.wanted or {})}

    def report(self, pod: Pod, status: State) -> None:
        """Have this sent; never waits."""
        sheet = self._sheets.get(pod.uid)
        if sheet is None or self._group is None:
            return
        sheet.wanted = status
        if not sheet.sending and status != sheet.sent and changes(sheet.told, status):
            sheet.sending = True
            sheet.done.clear()
            self._group.create_task(self._send(sheet), name=f"report {pod.ref}")

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
            await asyncio.Event().wait()

    async def _send(self, sheet: _Sheet) -> None:
        pause = FIRST_PAUSE
        try:
            # What the API keeps in other words than ours is said once, not for ever.
            while (
                sheet.wanted is not None and sheet.wanted != sheet.sent and (patch := changes(sheet.told, sheet.wanted))
            ):
                wanted = sheet.wanted
                try:
                    await self._patch(sheet, patch)
                    sheet.sent = wanted
                except ClientError as error:
                    log.info("status not sent", extra={"pod": sheet.pod.ref, "why": str(error)})
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
        except ApiError as error:
            if error.code not in (404, 409):  # gone, or another pod of that name by now
                log.warning("status refused", extra={"pod": sheet.pod.ref, "why": error.message})
        finally:
            sheet.sending = False
            sheet.done.set()

    async def _patch(self, sheet: _Sheet, patch: State) -> None:
        meta = sheet.pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": patch}
        now = await self._api.patch(
            PODS, meta.name, body, meta.namespace, type_=PatchType.STRATEGIC, subresource="status"
        )
        sheet.told = dict(now.get("status") or {})
        sheet.version = _version(now["metadata"].get("resourceVersion", ""))


def _version(text: str) -> int:
    return int(text) if text.isdecimal() else 0
