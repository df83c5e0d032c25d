"""Services get their cluster address, and node ports, when they are created; they give them back when they go.

A cluster address is taken by creating an IPAddress object of that name: the store's own uniqueness is the lock, so
that nothing is given twice even by two servers. What a crash leaves behind is collected at the next start.
"""

import ipaddress
import random
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from podwire.apiserver.admission.chain import Operation
from podwire.apiserver.ports import Store
from podwire.apiserver.registry import PREFIX
from podwire.apiserver.stored import Object, pack, unpack
from podwire.objects.names import is_ip
from podwire.objects.times import rfc3339
from podwire.protocols.k8sapi.status import ApiError, Reason, invalid, invalid_object
from podwire.protocols.storage import KeyExists, Stale
from podwire.seams import Clock

ADDRESSES = f"{PREFIX}ipaddresses/"
SERVICES = f"{PREFIX}services/specs/"
PORTS = range(30000, 32768)
TRIES = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(slots=True)
class ServiceAddresses:
    """Gives services addresses out of `network`; the first one is the API server's own."""

    store: Store
    network: Network
    clock: Clock
    _random: random.Random = field(default_factory=random.Random)

    async def admit(self, operation: Operation) -> None:
        if not operation.touches("", "services") or operation.subresource or operation.verb == "DELETE":
            return
        spec = operation.obj.setdefault("spec", {})
        if spec.get("type") == "ExternalName":
            return
        await self._address(operation, spec)
        if spec.get("type") in ("NodePort", "LoadBalancer"):
            await self._ports(operation, spec)

    async def undo(self, operation: Operation) -> None:
        for address in operation.taken:
            await self.release(address)

    async def release(self, address: str) -> None:
        """Give an address back; one that is not held is fine."""
        item = await self.store.get(f"{ADDRESSES}{address}")
        if item is not None:
            try:
                await self.store.delete(item.key, expected=item.revision)
            except Stale:
                return

    async def _address(self, operation: Operation, spec: Object) -> None:
        family = "IPv4" if self.network.version == 4 else "IPv6"
        spec.setdefault("ipFamilies", [family])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        wanted = spec.get("clusterIP", "")
        if operation.old is not None and (held := operation.old.get("spec", {}).get("clusterIP")):
            spec.setdefault("clusterIP", held)
            spec.setdefault("clusterIPs", [held])
            return
        if spec.get("clusterIPs") and not wanted:
            return  # validation says what is missing
        if wanted == "None":
            spec.setdefault("clusterIPs", [wanted])
            return
        address = await (self._given(operation, wanted) if wanted else self._free())
        operation.reserve = partial(self._reserve, operation, spec, address, given=bool(wanted))
        spec["clusterIP"], spec["clusterIPs"] = address, [address, *spec.get("clusterIPs", [])[1:]]

    async def _given(self, operation: Operation, address: str) -> str:
        """The address that was asked for, in its one spelling, if it can be had."""
        if not is_ip(address):
            return address  # validation names what is wrong with it
        wanted = ipaddress.ip_address(address)
        if wanted not in self.network:
            raise _refused(operation, address, f"the provided IP is not in the valid range {self.network}")
        if await self.store.get(f"{ADDRESSES}{wanted}"):
            raise _refused(operation, address, "provided IP is already allocated")
        return str(wanted)

    async def _free(self) -> str:
        """A random free address; a walk through all of them when luck runs out."""
        first, size = int(self.network.network_address), self.network.num_addresses
        for _ in range(TRIES):
            address = str(ipaddress.ip_address(first + self._random.randrange(1, size - 1)))
            if await self.store.get(f"{ADDRESSES}{address}") is None:
                return address
        page = await self.store.list(ADDRESSES)
        taken = {each.key.removeprefix(ADDRESSES) for each in page.items}
        for address in map(str, self.network.hosts()):
            if address not in taken:
                return address
        raise ApiError(Reason.INTERNAL_ERROR, f"failed to allocate a serviceIP: range {self.network} is full")

    async def _reserve(self, operation: Operation, spec: Object, address: str, *, given: bool) -> None:
        """Take the address; somebody else may have been faster."""
        while not await self._take(operation, address):
            if given:
                raise _refused(operation, address, "provided IP is already allocated")
            address = await self._free()
            spec["clusterIP"], spec["clusterIPs"] = address, [address]

    async def _take(self, operation: Operation, address: str) -> bool:
        parent = {"group": "", "resource": "services", "namespace": operation.namespace, "name": operation.name}
        obj = ip_address(address, parent, rfc3339(self.clock.wall()))
        try:
            await self.store.create(f"{ADDRESSES}{address}", pack(obj))
        except KeyExists:
            return False
        operation.taken.append(address)
        return True

    async def _ports(self, operation: Operation, spec: Object) -> None:
        page = await self.store.list(SERVICES)
        own = operation.obj["metadata"]["uid"]
        others = [each for each in map(unpack, page.items) if each["metadata"]["uid"] != own]
        used = {port.get("nodePort") for each in others for port in each.get("spec", {}).get("ports", [])}
        free = [each for each in PORTS if each not in used]
        self._random.shuffle(free)
        for index, port in enumerate(spec.get("ports", [])):
            if (given := port.get("nodePort")) and given in used:
                raise _no_port(operation, index, given, "provided port is already allocated")
            while not port.get("nodePort"):
                if not free:
                    raise _no_port(operation, index, 0, "failed to allocate a nodePort: range is full")
                if (number := free.pop()) not in used:
                    port["nodePort"] = number
            used.add(port["nodePort"])


def ip_address(address: str, parent: dict[str, Any], now: str) -> Object:
    """The IPAddress object that stands for a taken address."""
    labels = {"ipaddress.kubernetes.io/ip-family": "IPv6" if ":" in address else "IPv4",
              "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}  # fmt: skip
    metadata = {"name": address, "uid": str(uuid.uuid4()), "creationTimestamp": now, "labels": labels}
    return {
        "kind": "IPAddress",
        "apiVersion": "networking.k8s.io/v1",
        "metadata": metadata,
        "spec": {"parentRef": parent},
    }


def _no_port(operation: Operation, index: int, given: int, why: str) -> ApiError:
    return invalid_object("Service", operation.name, [invalid(f"spec.ports[{index}].nodePort", given, why)])


def _refused(operation: Operation, address: str, why: str) -> ApiError:
    error = invalid("spec.clusterIPs", [address], f"failed to allocate IP {address}: {why}")
    return invalid_object("Service", operation.name, [error])
