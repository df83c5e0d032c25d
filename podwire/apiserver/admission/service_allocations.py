"""Allocations of services: cluster addresses and node ports. Each is a record in the store; the record's key is the
lock.

Nothing is therefore allocated twice, not even by two servers. A record is created just before its service is stored and
deleted when the service no longer needs it. A crash in between leaves an orphaned record; only its age tells it from
that of a service that is being created (allocation_reconciler.py).
"""

import asyncio
import contextlib
import uuid
from dataclasses import dataclass

from podwire.apiserver.ports import Store
from podwire.interfaces import Clock
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, pack, unpack
from podwire.objects.times import parse, rfc3339
from podwire.protocols.storage import Item, KeyExists, Stale

ADDRESSES = f"{PREFIX}ipaddresses/"
NODE_PORTS = f"{PREFIX}ranges/servicenodeports/"
SERVICES = f"{PREFIX}services/specs/"

RELEASE_WAIT = 1.0
"""Seconds to wait for an allocation that another service has just released."""

_MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
_MANAGER = "ipallocator.k8s.io"


def allocated_to(service: Object | None) -> set[str]:
    """Returns the record keys of all addresses and ports of a service."""
    spec = (service or {}).get("spec", {})
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP", "")]
    ports = [spec.get("healthCheckNodePort"), *(port.get("nodePort") for port in spec.get("ports", []))]
    held = {f"{ADDRESSES}{address}" for address in addresses if address and address != "None"}
    return held | {f"{NODE_PORTS}{port}" for port in ports if port}


def place(service: Object) -> str:
    """Returns NAMESPACE/NAME of a service, as records name it."""
    return f"{service['metadata']['namespace']}/{service['metadata']['name']}"


def record(key: str, holder: str, now: str) -> Object:
    """Returns the record of an address or port: an IPAddress, or a similar object for a port, which has no API kind."""
    namespace, _, name = holder.partition("/")
    what = key.rpartition("/")[2]
    family = "IPv6" if ":" in what else "IPv4"
    labels = {"ipaddress.kubernetes.io/ip-family": family, _MANAGED_BY: _MANAGER}
    address = key.startswith(ADDRESSES)
    parent = {"group": "", "resource": "services", "namespace": namespace, "name": name}
    return {
        "kind": "IPAddress" if address else "NodePort",
        "apiVersion": "networking.k8s.io/v1" if address else "internal",
        "metadata": {
            "name": what,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": now,
            **({"labels": labels} if address else {}),
        },
        "spec": {"parentRef": parent},
    }


def owner_of(item: Item) -> str:
    """Returns the service that a record names; empty for a record that a user created."""
    obj = unpack(item)
    parent = obj.get("spec", {}).get("parentRef", {})
    ours = obj["kind"] == "NodePort" or obj["metadata"].get("labels", {}).get(_MANAGED_BY) == _MANAGER
    return f"{parent.get('namespace')}/{parent.get('name')}" if ours and parent.get("resource") == "services" else ""


@dataclass(frozen=True, slots=True)
class ServiceAllocations:
    """Reserves and releases addresses and ports."""

    store: Store
    clock: Clock

    async def available(self, key: str, service: Object) -> bool:
        """Returns whether the service can have it: it is free, or its previous owner, even of the same name, is
        deleted."""
        revision = self.store.revision
        item = await self.store.get(key)
        if item is None:
            return True
        holder = owner_of(item)
        if not holder or await self._holds(holder, key):
            return False
        return holder == place(service) or await self._released(key, revision)

    async def take(self, key: str, service: Object) -> Item | None:
        """Creates the record for the service; returns None when another service has it."""
        try:
            return await self.store.create(key, self._value(key, place(service)))
        except KeyExists:
            return None

    async def inherit(self, key: str, service: Object) -> bool:
        """Takes over the record of a deleted service of the same name."""
        item, name = await self.store.get(key), place(service)
        if item is None or owner_of(item) != name or await self._holds(name, key):
            return False
        try:
            await self.store.update(key, self._value(key, name), expected=item.revision)
        except Stale:
            return False
        return True

    async def release(self, item: Item) -> None:
        """Deletes exactly this record; one that was taken over meanwhile stays."""
        with contextlib.suppress(Stale):
            await self.store.delete(item.key, expected=item.revision)

    async def release_until(self, key: str, revision: int) -> None:
        """Deletes a record that was created no later than `revision`, at which its owner released it."""
        item = await self.store.get(key)
        if item is not None and item.revision <= revision and owner_of(item):
            await self.release(item)

    def age(self, item: Item) -> float:
        """Returns the age of a record in seconds."""
        return self.clock.wall() - parse(unpack(item)["metadata"]["creationTimestamp"])

    async def _holds(self, holder: str, key: str) -> bool:
        item = await self.store.get(f"{SERVICES}{holder}")
        return item is not None and key in allocated_to(unpack(item))

    async def _released(self, key: str, after: int) -> bool:
        prefix = f"{key.rpartition('/')[0]}/"
        with contextlib.closing(self.store.watch(prefix, after=after)) as watch, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RELEASE_WAIT):
                while True:
                    if any(change.key == key and change.item is None for change in await watch.next()):
                        return True
        return False

    def _value(self, key: str, holder: str) -> bytes:
        return pack(record(key, holder, rfc3339(self.clock.wall())))
