"""The slices of a node's pool, kept equal to its devices: written when these change, put back when somebody deletes.

Kubelets delete the slices of their node when they start; a pool that is gone lets pods wait for nothing. So deletions
are answered at once. What somebody else changes is set right more slowly: it may be another instance of the driver.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from podwire.dradriver.inventory.devices import split
from podwire.dradriver.inventory.subscribers import Subscribers
from podwire.dradriver.names import COMPONENT, DRIVER, NODES, SLICES
from podwire.dradriver.publish.slices import Create, Delete, Object, Pool, Replace, Write, comparable, plan
from podwire.protocols.k8sapi.client_side import Client, ClientError, Scope
from podwire.protocols.k8sapi.status import ApiError
from podwire.protocols.k8sapi.watch import Added, Change, Deleted, Synced, Updated, metadata, version_of

FIRST_WAIT, LONGEST_WAIT = 0.05, 2.0
"""Seconds between tries while the API server is away, or refuses."""
FOREIGN_SECONDS = 1.0
"""Until what somebody else changed is set right."""
QUARREL, QUARREL_SECONDS = 3, 10.0
"""So many deletions of one slice, in so many seconds, are answered at once."""
PACE_SECONDS = 0.1
"""Between two changes of devices: a link that flaps is not written for each time."""

_log = logging.getLogger("podwire.dradriver")
_REFUSED = re.compile(r"spec\.devices\[(\d+)\](?:\.(attributes|capacity)\[([^\]]+)\])?")


class Devices(Protocol):
    """An Inventory, as far as it is published."""

    subscribers: Subscribers

    @property
    def looked(self) -> bool: ...

    def devices(self) -> Sequence[Object]: ...


class NoNode(Exception):
    """The node is not there: its slices would belong to nobody."""


class Publisher:
    def __init__(self, client: Client, inventory: Devices, *, node: str, driver: str = DRIVER) -> None:
        self._client, self._inventory = client, inventory
        self._pool = Pool(driver, node)
        self._seen: dict[str, Object] = {}
        self._answers: dict[str, tuple[Object, Object]] = {}
        self._loses = False
        """Whether it was told that the server keeps less than it is given."""
        self._generation = 0
        self._refused = Refused()
        self._deleted: dict[str, list[float]] = {}
        """When slices were deleted by others, lately."""
        self._synced = self._writing = False
        self._wake, self._hurry, self._told = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._not_before = 0.0
        self._wait = FIRST_WAIT
        self._trouble = ""

    def publish_now(self) -> None:
        """Publish now, whatever was waited for: the kubelet has just registered the driver, say."""
        self._not_before, self._wait = 0.0, FIRST_WAIT
        self._hurry.set()
        self._wake.set()

    async def settled(self) -> None:
        """Return when the slices say what they should."""
        while not self._ready() or self._writes():
            self._told.clear()
            await self._told.wait()

    async def run(self) -> None:
        """Until cancelled. Nothing is written before the inventory has looked at the host."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(), name="watch slices")
            tasks.create_task(self._follow_devices(), name="follow devices")
            tasks.create_task(self._write_always(), name="write slices")

    async def _watch(self) -> None:
        selector = f"spec.driver={self._pool.driver},spec.nodeName={self._pool.node}"
        async with self._client.informer(SLICES, Scope(field_selector=selector)) as informer:
            async for change in informer:
                self._take(change)
                self._told.set()

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
                    self._see_to_it(foreign=known is None or version_of(object_) != version_of(known))
            case Deleted(object_):
                name = metadata(object_).get("name", "")
                if not _is_older(object_, self._seen.get(name)):
                    self._seen.pop(name, None)
                    self._put_back(name)

    def _put_back(self, name: str) -> None:
        """At once; but not for ever at once, where another instance with other settings wants it gone."""
        now = asyncio.get_running_loop().time()
        times = [each for each in self._deleted.get(name, ()) if now - each < QUARREL_SECONDS]
        self._deleted[name] = [*times, now]
        if len(times) < QUARREL:
            self.publish_now()
        else:
            self._see_to_it(foreign=True)

    def _see_to_it(self, *, foreign: bool) -> None:
        """What somebody else changed is set right, if it has to be, and not at once."""
        if foreign and not self._writing and self._writes():
            later = asyncio.get_running_loop().time() + FOREIGN_SECONDS
            self._not_before = max(self._not_before, later)
        self._wake.set()

    async def _follow_devices(self) -> None:
        async for _ in self._inventory.subscribers.changes():
            self._wake.set()
            await asyncio.sleep(PACE_SECONDS)

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
                self._told.set()

    def _ready(self) -> bool:
        return self._synced and self._inventory.looked

    async def _pause(self, seconds: float) -> None:
        """Until then, or until somebody is in a hurry."""
        self._hurry.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            return

    async def _publish(self) -> None:
        """Write until there is nothing more to be written; for what is refused, ask again, ever more slowly."""
        self._writing = True
        wrote = False
        try:
            while writes := self._writes():
                await self._do_all(writes)
                wrote = True
            if wrote:
                _log.info("published", extra={"pool": self._pool.name, "slices": len(self._seen)})
            self._wait, self._trouble = FIRST_WAIT, ""
        except (ApiError, ClientError, NoNode) as error:
            self._failed(error)
        finally:
            self._writing = False

    def _failed(self, error: Exception) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log.warning("slices not published; tried again", extra={"why": str(error)})
        self._not_before = asyncio.get_running_loop().time() + self._wait
        self._wait = min(self._wait * 2, LONGEST_WAIT)
        self._wake.set()

    def _writes(self) -> list[Write]:
        wanted = split([each for device in self._inventory.devices() if (each := self._refused.rest(device))])
        published = [self._seen[name] for name in sorted(self._seen)]
        return plan(self._pool, published, wanted, answers=self._answers, least=self._generation)

    async def _do_all(self, writes: Sequence[Write]) -> None:
        """In allocation, until one turns out to rest on something that is not so."""
        owner = await self._owner() if any(isinstance(each, Create) for each in writes) else {}
        for write in writes:
            if not await self._do(write, owner):
                return

    async def _owner(self) -> Object:
        """The node, asked for each time: one that was registered anew has another uid."""
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
        """A server that does not know a field drops it. Told once; writing it again would change nothing."""
        self._answers.pop(name, None)
        if comparable(sent) != comparable(kept):
            if not self._loses:
                self._loses = True
                _log.warning("the API server keeps less of a slice than it was given", extra={"slice": name})
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
        """How a slice is, where what was known of it proved wrong; False for one that is somebody else's."""
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
    """What the server would not take: left out for as long as it is what it was, so that the others are published."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str, str], Any] = {}

    def learn(self, devices: Sequence[Object], error: ApiError) -> bool:
        """Whether the refusal says which devices, or parts of them, it means."""
        found = [_REFUSED.match(str(each.get("field", ""))) for each in error.details.get("causes") or ()]
        for each in found:
            if each is None or int(each[1]) >= len(devices):
                continue
            device, part, name = devices[int(each[1])], each[2] or "", each[3] or ""
            value = device.get(part, {}).get(name) if name else device
            self._values[device["name"], part, name] = value
            what = {"device": device["name"]} | ({"attribute": name} if name else {})
            _log.error("the API server does not take it; left out", extra=what | {"why": error.message})
        return any(found)

    def rest(self, device: Object) -> Object | None:
        """As much of a device as the server takes; None for nothing."""
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
    """Whether what the watch tells was so before what is known: our own writes are known before they are told."""
    if known is None:
        return False
    told, had = version_of(object_), version_of(known)
    if told.isdecimal() and had.isdecimal():
        return int(told) < int(had)
    return bool(metadata(object_).get("uid") != metadata(known).get("uid"))
