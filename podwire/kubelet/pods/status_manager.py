"""The status manager: patches the newest status of each pod in the API, one request at a time, only what changed.

It also deletes a terminated pod from the API, after its last status was sent.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from podwire.failpoints import declare, failpoint
from podwire.kubelet.pods.container_status import State
from podwire.kubelet.pods.limits import StatusLimits
from podwire.kubelet.pods.resize import CONDITIONS
from podwire.kubelet.pods.status import status_patch
from podwire.objects.pods import Pod
from podwire.protocols.k8sapi.client_side import Client, ClientError, PatchType
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Object

log = logging.getLogger(__name__)

PODS = Kind(group="", version="v1", resource="pods", kind="Pod", namespaced=True)
TERMINAL = ("Succeeded", "Failed")
STARTING = ("ContainerCreating", "PodInitializing")

SENT = declare("kubelet.status-sent", "the API server has a pod's status; the kubelet has not noted it yet")


@dataclass(slots=True)
class _Entry:
    """One pod: the status that the API has, and the one that it should have."""

    pod: Pod
    stored: State
    version: int
    wanted: State | None = None
    sent: State | None = None
    """The wanted status when it was sent last."""
    stored_after_sent: State | None = None
    """The pod as the API server returned it."""
    target: str = ""
    """The uid in the API: that of the mirror, for a static pod; empty while the API has no mirror."""
    sending: bool = False
    urgent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is more to report than that the pod is starting."""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def patch(self) -> State:
        """The patch to send. A status that the API stores in other words than ours is sent once, not for ever."""
        if self.wanted is None or (self.wanted == self.sent and self.stored == self.stored_after_sent):
            return {}
        return {} if self.overruled else status_patch(self.stored, self.wanted)

    @property
    def overruled(self) -> bool:
        """Whether somebody else ended the pod: no transition leads out of a terminal phase."""
        ended = self.stored.get("phase") in TERMINAL
        return ended and self.wanted is not None and self.wanted.get("phase") not in TERMINAL

    @property
    def latest(self) -> State:
        if self.wanted is None:
            return self.stored
        ours = self.wanted.get("conditions") or []
        types = {condition["type"] for condition in ours} | set(CONDITIONS)
        others = [condition for condition in self.stored.get("conditions") or () if condition["type"] not in types]
        merged = {**self.stored, **self.wanted, "conditions": [*ours, *others]}
        if self.overruled:
            merged |= {name: self.stored[name] for name in ("phase", "reason", "message") if name in self.stored}
        return merged

    def update(self, status: State, version: int) -> None:
        """Ignores a state that is older than the one that is known."""
        if version >= self.version:
            self.stored, self.version = status, version


class StatusManager:
    """A status that is superseded before it was sent is never sent."""

    def __init__(self, api: Client, limits: StatusLimits) -> None:
        self._api = api
        self._limits = limits
        self._entries: dict[str, _Entry] = {}
        self._mirrors: dict[str, str] = {}
        """By uid of a static pod: the uid of its mirror."""
        self._tasks: asyncio.TaskGroup | None = None

    def update(self, pod: Pod, object_: Object) -> None:
        """The API has this status, by a watch."""
        status, version = dict(object_.get("status") or {}), _version(pod.metadata.resource_version)
        entry = self._entries.get(pod.uid)
        if entry is None:
            target = self._mirrors.get(pod.uid, "") if pod.static else pod.uid
            self._entries[pod.uid] = _Entry(pod, status, version, target=target)
        else:
            entry.update(status, version)
            self._send_if_changed(entry)

    def set_mirror(self, uid: str, mirror: str) -> None:
        """The API has a static pod under this uid; empty if it has none."""
        self._mirrors[uid] = mirror
        entry = self._entries.get(uid)
        if entry is not None and entry.target != mirror:
            entry.target, entry.stored, entry.version = mirror, {}, 0
            entry.sent = entry.stored_after_sent = None

    def latest(self, uid: str) -> State:
        """The status that the API has or is about to have."""
        entry = self._entries.get(uid)
        return {} if entry is None else entry.latest

    def report(self, pod: Pod, status: State) -> None:
        """Have this sent; never waits."""
        entry = self._entries.get(pod.uid)
        if entry is not None:
            entry.wanted = status
            if not _is_starting(status):
                entry.urgent.set()
            self._send_if_changed(entry)

    async def sent(self, uid: str) -> None:
        """Wait until no request for the pod is in flight."""
        entry = self._entries.get(uid)
        if entry is not None and entry.sending:
            await entry.done.wait()

    async def delete_pod(self, pod: Pod) -> None:
        """Delete a terminated pod from the API, after its last status was sent. Raises ApiError, ClientError.

        The mirror of a static pod is deleted elsewhere: its end must not wait for the API.
        """
        if pod.static:
            return
        await self.sent(pod.uid)
        try:
            await self._api.delete(PODS, pod.name, pod.namespace, grace_seconds=0, uid=pod.uid)
        except ApiError as error:
            if error.code not in (404, 409):  # deleted already, or replaced by another pod of that name
                raise

    def forget(self, uid: str) -> None:
        self._entries.pop(uid, None)
        self._mirrors.pop(uid, None)

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None  # a task group that is shutting down refuses new tasks

    def _send_if_changed(self, entry: _Entry) -> None:
        if self._tasks is not None and not entry.sending and entry.target and entry.patch:
            entry.sending = True
            entry.done.clear()
            self._tasks.create_task(self._send(entry), name=f"status of {entry.pod.ref}")

    async def _send(self, entry: _Entry) -> None:
        """Send until the API has the wanted status, or the pod is forgotten."""
        first, longest = self._limits.backoff
        pause = first
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.starting_delay):
                    await entry.urgent.wait()
            while entry.target and (patch := entry.patch) and self._entries.get(entry.pod.uid) is entry:
                try:
                    await self._patch(entry, patch)
                    pause = first
                except (ClientError, ApiError) as error:
                    about = {"pod": entry.pod.ref, "error": str(error)}
                    if isinstance(error, ApiError) and error.code < 500 and error.code != 429:
                        if error.code not in (404, 409):  # deleted, or replaced by another pod of that name
                            log.warning("API server rejected pod status", extra=about)
                        return
                    log.info("cannot send pod status", extra=about)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, longest)
        finally:
            entry.sending = False
            entry.done.set()

    async def _patch(self, entry: _Entry, patch: State) -> None:
        meta, wanted = entry.pod.metadata, entry.wanted
        body = {"metadata": {"uid": entry.target}, "status": patch}
        now = await self._api.patch(
            PODS, meta.name, body, meta.namespace, type_=PatchType.STRATEGIC, subresource="status"
        )
        failpoint(SENT)
        stored = dict(now.get("status") or {})
        entry.update(stored, _version(now["metadata"].get("resourceVersion", "")))
        entry.sent, entry.stored_after_sent = wanted, stored


def _is_starting(status: State) -> bool:
    """Whether the pod is about to start and nothing has gone wrong so far."""
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    waiting = [container["state"].get("waiting") or {} for container in containers]
    return status.get("phase") == "Pending" and all(
        state.get("reason") in STARTING and not state.get("message") for state in waiting
    )


def _version(text: str) -> int:
    return int(text) if text.isdecimal() else 0
