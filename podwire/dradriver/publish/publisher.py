"""Reconciles the ResourceSlices of a node's pool with its devices.

Kubelets delete the slices of their node when they start, and pods cannot be scheduled without them; so deleted slices
are created again at once. Other foreign changes are reverted after a delay: they may come from another instance of the
driver, and two instances must not fight.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from podwire.dradriver.inventory.devices import split
from podwire.dradriver.inventory.subscribers import Subscribers
from podwire.dradriver.names import COMPONENT, DRIVER, NODES, SLICES
from podwire.dradriver.publish.slices import Create, Delete, Object, Pool, Replace, Write, comparable, plan
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Synced, Updated, metadata, version_of
from podwire.tasks.backoff import Pauses

_log = logging.getLogger("podwire.dradriver")
_REFUSED = re.compile(r"spec\.devices\[(\d+)\](?:\.(attributes|capacity)\[([^\]]+)\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishLimits:
    """Seconds, but for `deletions`."""

    first_pause: float = 0.05
    longest_pause: float = 2.0
    """Back-off while the API server is unreachable or rejects slices."""
    foreign: float = 1.0
    """Until a foreign change is reverted."""
    deletions: int = 3
    deletion_window: float = 10.0
    """So many deletions of one slice within the window are reverted at once; more count as foreign changes."""
    pace: float = 0.1
    """Between two changes of devices: a flapping link is not published each time."""


class Devices(Protocol):
    """The part of the inventory that is published."""

    subscribers: Subscribers

    @property
    def looked(self) -> bool: ...

    def devices(self) -> Sequence[Object]: ...


class NoNode(Exception):
    """The node does not exist, so its slices would have no owner."""


class Publisher:
    def __init__(
        self,
        client: Client,
        inventory: Devices,
        *,
        node: str,
        driver: str = DRIVER,
        limits: PublishLimits | None = None,
    ) -> None:
        self._client, self._inventory, self._limits = client, inventory, limits or PublishLimits()
        self._pool = Pool(driver, node)
        self._seen: dict[str, Object] = {}
        self._answers: dict[str, tuple[Object, Object]] = {}
        self._loses = False
        """Whether it was logged that the server drops fields."""
        self._generation = 0
        self._refused = Refused()
        self._deleted: dict[str, list[float]] = {}
        """When others deleted slices, within the window."""
        self._synced = self._writing = False
        self._wake, self._hurry, self._published = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._not_before = 0.0
        self._pauses = Pauses(self._limits.first_pause, self._limits.longest_pause)
        self._error = ""

    def publish_now(self) -> None:
        """Publishes without delay: the kubelet has just registered the driver, say."""
        self._not_before = 0.0
        self._pauses.reset()
        self._hurry.set()
        self._wake.set()

    async def idle(self) -> None:
        """Waits until the slices are up to date."""
        while not self._ready() or self._writes():
            self._published.clear()
            await self._published.wait()

    async def run(self) -> None:
        """Until cancelled. Nothing is written before the inventory has read the host."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name="watch slices")
            tasks.create_task(self._follow_devices(), name="follow devices")
            tasks.create_task(self._write_always(), name="write slices")

    async def _watch(self) -> None:
        selector = f"spec.driver={self._pool.driver},spec.nodeName={self._pool.node}"
        async with self._client.informer(SLICES, Scope(field_selector=selector)) as informer:
            async for change in informer:
                self._take(change)
                self._published.set()

    def _take(self, change: Change) -> None:
        match change:
            case Synced():
                self._synced = True
                self.publish_now()
            case Added(object_) | Updated(object_, _):
                name = metadata(object_).get("name", "")
                known = self._seen.get(name)
                if not _is_older(object_, known):
                    self._seen[name] = object_
                    self._schedule(foreign=known is None or version_of(object_) != version_of(known))
            case Deleted(object_):
                name = metadata(object_).get("name", "")
                if not _is_older(object_, self._seen.get(name)):
                    self._seen.pop(name, None)
                    self._on_deleted(name)

    def _on_deleted(self, name: str) -> None:
        """Publishes at once, unless the slice is deleted again and again, by an instance with other settings, say."""
        now = asyncio.get_running_loop().time()
        times = [moment for moment in self._deleted.get(name, ()) if now - moment < self._limits.deletion_window]
        self._deleted[name] = [*times, now]
        if len(times) < self._limits.deletions:
            self.publish_now()
        else:
            self._schedule(foreign=True)

    def _schedule(self, *, foreign: bool) -> None:
        """Wakes the writer; a foreign change is reverted after a delay."""
        if foreign and not self._writing and self._writes():
            later = asyncio.get_running_loop().time() + self._limits.foreign
            self._not_before = max(self._not_before, later)
        self._wake.set()

    async def _follow_devices(self) -> None:
        async for _ in self._inventory.subscribers.changes():
            self._wake.set()
            await asyncio.sleep(self._limits.pace)

    async def _write_always(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            if (wait := self._not_before - loop.time()) > 0:
                await self._pause(wait)
                continue
            self._wake.clear()
            if self._ready():
                await self._publish()
                self._published.set()

    def _ready(self) -> bool:
        return self._synced and self._inventory.looked

    async def _pause(self, seconds: float) -> None:
        """Waits, until `publish_now` at most."""
        self._hurry.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return

    async def _publish(self) -> None:
        """Writes until the slices are up to date; failures are retried with back-off."""
        self._writing = True
        wrote = False
        try:
            while writes := self._writes():
                await self._do_all(writes)
                wrote = True
            if wrote:
                _log.info("published resource slices", extra={"pool": self._pool.name, "slices": len(self._seen)})
            self._error = ""
            self._pauses.reset()
        except (ApiError, ClientError, NoNode) as error:
            if str(error) != self._error:
                self._error = str(error)
                _log.warning("cannot publish resource slices; retrying", extra={"error": str(error)})
            self._not_before = asyncio.get_running_loop().time() + self._pauses.next()
            self._wake.set()
        finally:
            self._writing = False

    def _writes(self) -> list[Write]:
        wanted = split([each for device in self._inventory.devices() if (each := self._refused.rest(device))])
        published = [self._seen[name] for name in sorted(self._seen)]
        return plan(self._pool, published, wanted, answers=self._answers, least=self._generation)

    async def _do_all(self, writes: Sequence[Write]) -> None:
        """Writes in order, until a slice turns out to be different from what was known."""
        owner = await self._owner() if any(isinstance(write, Create) for write in writes) else {}
        for write in writes:
            if not await self._do(write, owner):
                return

    async def _owner(self) -> Object:
        """Reads the node each time: one that was registered again has another uid."""
        try:
            meta = metadata(await self._client.get(NODES, self._pool.node))
        except ApiError as error:
            if error.code == 404:
                raise NoNode(f'node "{self._pool.node}" not found') from error
            raise
        return {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"], "controller": True}

    async def _do(self, write: Write, owner: Object) -> bool:
        match write:
            case Create(name, spec):
                meta: Object = {"name": name, "ownerReferences": [owner]}
                return await self._put(self._client.create, meta, spec)
            case Replace(name, spec, seen):
                meta = {key: value for key, value in metadata(seen).items() if key != "managedFields"}
                return await self._put(self._client.replace, meta, spec)
            case Delete(name, seen):
                return await self._remove(name, seen)

    async def _put(self, call: Callable[..., Awaitable[Object]], meta: Object, spec: Object) -> bool:
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
        try:
            kept = await call({**head, "metadata": meta, "spec": spec}, field_manager=COMPONENT)
        except ApiError as error:
            if error.code == 422 and self._refused.learn(spec["devices"], error):
                return False
            if error.code in (404, 409) and await self._look_at(meta["name"]):
                return False
            raise
        self._seen[meta["name"]] = kept
        self._generation = max(self._generation, spec["pool"]["generation"])
        self._compare(meta["name"], spec, kept.get("spec") or {})
        return True

    def _compare(self, name: str, sent: Object, kept: Object) -> None:
        """A server that does not know a field drops it. Logged once; writing it again would change nothing."""
        self._answers.pop(name, None)
        if comparable(sent) != comparable(kept):
            if not self._loses:
                self._loses = True
                _log.warning("API server dropped fields of a slice", extra={"slice": name})
            self._answers[name] = sent, kept

    async def _remove(self, name: str, seen: Object) -> bool:
        try:
            await self._client.delete(SLICES, name, uid=metadata(seen).get("uid", ""))
        except ApiError as error:
            if error.code in (404, 409) and await self._look_at(name):
                return False
            raise
        self._seen.pop(name, None)
        return True

    async def _look_at(self, name: str) -> bool:
        """Reads a slice again after a conflict; False if it belongs to another driver or node."""
        try:
            found = await self._client.get(SLICES, name)
        except ApiError as error:
            if error.code != 404:
                raise
            self._seen.pop(name, None)
            return True
        spec = found.get("spec") or {}
        if (spec.get("driver"), spec.get("nodeName")) != (self._pool.driver, self._pool.node):
            return False
        self._seen[name] = found
        return True


class Refused:
    """Devices and attributes that the server rejected: left out until they change, so that the others are published."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str], Any] = {}

    def learn(self, devices: Sequence[Object], error: ApiError) -> bool:
        """Whether the error names the devices or attributes that it is about."""
        matches = [_REFUSED.match(str(cause.get("field", ""))) for cause in error.details.get("causes") or ()]
        for matched in matches:
            if matched is None or int(matched[1]) >= len(devices):
                continue
            device, part, name = devices[int(matched[1])], matched[2] or "", matched[3] or ""
            value = device.get(part, {}).get(name) if name else device
            self._values[device["name"], part, name] = value
            what = {"device": device["name"]} | ({"attribute": name} if name else {})
            _log.error("API server rejected part of a device", extra=what | {"error": error.message})
        return any(matches)

    def rest(self, device: Object) -> Object | None:
        """Returns what the server accepts of a device; None for nothing."""
        if not self._values:
            return device
        if self._values.get((device["name"], "", "")) == device:
            return None
        parts: Object = {part: self._good(device, part) for part in ("attributes", "capacity") if part in device}
        return {**device, **parts}

    def _good(self, device: Object, part: str) -> Object:
        name = device["name"]
        return {key: value for key, value in device[part].items() if self._values.get((name, part, key)) != value}


def _is_older(object_: Object, known: Object | None) -> bool:
    """Whether an event is older than what is known: our own writes are known before their events come."""
    if known is None:
        return False
    reported, had = version_of(object_), version_of(known)
    if reported.isdecimal() and had.isdecimal():
        return int(reported) < int(had)
    return bool(metadata(object_).get("uid") != metadata(known).get("uid"))
