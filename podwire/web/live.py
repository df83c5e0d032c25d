"""The state of the cluster while somebody looks at it: rows of pods and nodes, warnings, and recorded starts.

Nothing is watched while no browser is connected, so that a page that nobody looks at costs nothing. Rows are kept
instead of objects: ten thousand pods are a few megabytes. Changes are published in batches.

    no browser --connects--> watching --last one gone for `linger` seconds--> no browser
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from podwire.protocols.k8sapi.builtin import BUILTIN
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.kinds import Kind
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import BOOKMARK, ERROR, BadFrame, Object, metadata, version_of
from podwire.trace.index import Start
from podwire.trace.plain_text import cut, plain
from podwire.trace.record import pod_id
from podwire.web import node_health, pod_health
from podwire.web.event_hub import EventHub, encoded
from podwire.web.node_health import NodeRow
from podwire.web.pod_health import Level, PodRow
from podwire.web.stored_traces import StoredTraces

_log = logging.getLogger("podwire.ui")
PODS, NODES, EVENTS = (BUILTIN["v1", kind] for kind in ("Pod", "Node", "Event"))
WARNINGS = Scope(field_selector="type=Warning")
MOST_WARNINGS = 20_000
MOST_STARTS = 2000
"""Starts in a snapshot; the newest."""
_DELETED = "DELETED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    batch: float = 0.25
    """Seconds between two messages to browsers."""
    linger: float = 20.0
    """Seconds that the watches go on after the last browser has gone."""
    first_backoff: float = 0.5
    longest_backoff: float = 10.0


class Live:
    def __init__(self, client: Client, traces: StoredTraces, hub: EventHub, limits: Limits | None = None) -> None:
        self._client, self._traces, self._hub = client, traces, hub
        self._limits = limits or Limits()
        self._rows: dict[str, PodRow] = {}
        self._unwell: dict[str, Object] = {}
        """Pods that wait or fail: their rows change with events and traces."""
        self._nodes: dict[str, NodeRow] = {}
        self._warnings: dict[str, tuple[str, str]] = {}
        """By the UID of a pod: the name of its last Warning event, and its text."""
        self._troubles: dict[str, str] = {}
        self._changed: set[str] = set()
        self._changed_nodes: set[str] = set()
        self._changed_starts: set[str] = set()
        self._is_reported = True

    async def run(self) -> None:
        """Works until cancelled."""
        while True:
            await self._hub.watched.wait()
            watching = asyncio.create_task(self._watch(), name="ui watches")
            try:
                await self._until_nobody_looks()
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
            for rows in (self._rows, self._unwell, self._nodes, self._warnings, self._troubles):
                rows.clear()

    async def _until_nobody_looks(self) -> None:
        while True:
            await self._hub.unwatched.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._limits.linger):
                    await self._hub.watched.wait()
                    continue
            return

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow("pods", PODS, Scope(), self._put_pod, self._drop_pods))
            group.create_task(self._follow("nodes", NODES, Scope(), self._put_node, self._drop_nodes))
            group.create_task(self._follow("events", EVENTS, WARNINGS, self._put_warning, lambda _: None))
            group.create_task(self._follow_traces())
            group.create_task(self._publish())

    def snapshot(self) -> bytes:
        """Returns everything, as the first event of a browser."""
        starts = sorted(self._traces.starts.values(), key=lambda start: start.first)[-MOST_STARTS:]
        return encoded(
            "snapshot",
            {
                "pods": list(self._rows.values()),
                "nodes": list(self._nodes.values()),
                "starts": [start_row(start) for start in starts],
                "troubles": self._troubles,
            },
        )

    async def _publish(self) -> None:
        while True:
            await asyncio.sleep(self._limits.batch)
            if not (self._changed or self._changed_nodes or self._changed_starts) and self._is_reported:
                continue
            pods, self._changed = self._changed, set()
            nodes, self._changed_nodes = self._changed_nodes, set()
            starts, self._changed_starts = self._changed_starts, set()
            self._is_reported = True
            known = self._traces.starts
            self._hub.publish(
                "change",
                {
                    "pods": [self._rows[uid] for uid in pods if uid in self._rows],
                    "gone": [uid for uid in pods if uid not in self._rows],
                    "nodes": [self._nodes[name] for name in nodes if name in self._nodes],
                    "gone_nodes": [name for name in nodes if name not in self._nodes],
                    "starts": [start_row(known[pod]) for pod in starts if pod in known],
                    "troubles": self._troubles,
                },
            )

    async def _follow(
        self,
        name: str,
        kind: Kind,
        scope: Scope,
        put: Callable[[str, Object], None],
        drop_others: Callable[[set[str]], None],
    ) -> None:
        """Lists and watches one kind for ever; what fails is shown on the page, and retried."""
        version, backoff = "", self._limits.first_backoff
        while True:
            try:
                if not version:
                    listing = await self._client.list(kind, scope)
                    drop_others({str(metadata(object_).get("uid", "")) for object_ in listing.items})
                    for object_ in listing.items:
                        put("ADDED", object_)
                    version = listing.resource_version
                watching = await self._client.watch(kind, scope, resource_version=version, seconds=300)
                self._trouble(name, "")
                backoff = self._limits.first_backoff
                try:
                    async for frame in watching:
                        if frame.type == ERROR:
                            raise ApiError.from_status(frame.object)
                        if frame.type != BOOKMARK:
                            put(frame.type, frame.object)
                        version = version_of(frame.object) or version
                finally:
                    watching.close()
            except (ApiError, ClientError, BadFrame) as error:
                version = "" if isinstance(error, ApiError) else version
                self._trouble(name, f"cannot watch {name}: {cut(plain(str(error)), 300)}")
                await asyncio.sleep(backoff)
                backoff = min(2 * backoff, self._limits.longest_backoff)

    def _trouble(self, name: str, text: str) -> None:
        if self._troubles.get(name, "") == text:
            return
        if text:
            _log.warning("cannot follow the cluster", extra={"kind": name, "error": text})
            self._troubles[name] = text
        else:
            self._troubles.pop(name, None)
        self._is_reported = False

    def _put_pod(self, type_: str, pod: Object) -> None:
        uid = str(metadata(pod).get("uid", ""))
        if type_ == _DELETED:
            self._rows.pop(uid, None)
            self._unwell.pop(uid, None)
            self._changed.add(uid)
            return
        self._row(uid, pod)

    def _row(self, uid: str, pod: Object) -> None:
        start = self._traces.starts.get(pod_id(uid))
        row = pod_health.row(
            pod,
            self._warnings.get(uid, ("", ""))[1],
            start.failure if start is not None and start.running is None else "",
            start.took if start is not None else None,
            traced=start is not None,
        )
        if row.level in (Level.FAILING, Level.WAITING):
            self._unwell[uid] = pod
        else:
            self._unwell.pop(uid, None)
        if self._rows.get(uid) != row:
            self._rows[uid] = row
            self._changed.add(uid)

    def _drop_pods(self, known: set[str]) -> None:
        for uid in self._rows.keys() - known:
            self._put_pod(_DELETED, {"metadata": {"uid": uid}})

    def _put_node(self, type_: str, node: Object) -> None:
        row = node_health.row(node)
        if type_ == _DELETED:
            self._nodes.pop(row.name, None)
            self._changed_nodes.add(row.name)
        elif self._nodes.get(row.name) != row:
            self._nodes[row.name] = row
            self._changed_nodes.add(row.name)

    def _drop_nodes(self, _known: set[str]) -> None:
        self._changed_nodes |= self._nodes.keys()
        self._nodes.clear()

    def _put_warning(self, type_: str, event: Object) -> None:
        about = event.get("involvedObject") or {}
        uid, name = str(about.get("uid", "")), str(metadata(event).get("name", ""))
        if type_ == _DELETED:
            if self._warnings.get(uid, ("", ""))[0] == name:
                del self._warnings[uid]
            return
        if about.get("kind") != "Pod" or event.get("type") != "Warning":
            return
        count = event.get("count") or (event.get("series") or {}).get("count") or 1
        times = f" ({count} times)" if isinstance(count, int) and count > 1 else ""
        self._warnings.pop(uid, None)
        self._warnings[uid] = name, cut(plain(f"{event.get('reason')}{times}: {event.get('message')}"), 300)
        while len(self._warnings) > MOST_WARNINGS:
            del self._warnings[next(iter(self._warnings))]
        if uid in self._unwell:
            self._row(uid, self._unwell[uid])

    async def _follow_traces(self) -> None:
        async for changed in self._traces.changes():
            self._changed_starts |= changed
            uids = {pod_id(uid): uid for uid in self._rows}
            for pod in changed:
                uid = uids.get(pod)
                if uid is None:
                    continue
                if uid in self._unwell:
                    self._row(uid, self._unwell[uid])
                else:
                    self._retime(uid, self._traces.starts[pod])

    def _retime(self, uid: str, start: Start) -> None:
        """A pod that runs needs nothing of its trace but the time that it took."""
        row = self._rows[uid]
        if (row.took, row.traced) != (start.took, True):
            self._rows[uid] = pod_health.with_trace(row, start.took)
            self._changed.add(uid)


def start_row(start: Start) -> Mapping[str, Any]:
    """A recorded start in the lists of the page."""
    return {
        "pod": start.pod,
        "key": plain(f"{start.namespace}/{start.name}"),
        "begin": start.begin if start.begin is not None else start.first,
        "last": start.last,
        "took": start.took,
        "calls": start.calls,
        "failures": start.failures,
        "failure": cut(plain(start.failure), 300),
    }
