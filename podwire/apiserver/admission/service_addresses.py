"""Chooses cluster addresses and node ports of services; they are reserved once the object is valid.

A service keeps its addresses from update to update, and releases those that it no longer needs (service_types.py).
Reserving and releasing is in service_allocations.py and allocation_reconciler.py.
"""

import ipaddress
import random
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from functools import partial

from podwire.apiserver.admission import service_families, service_types
from podwire.apiserver.admission.chain import WRITES, AdmissionPlugin, Operation
from podwire.apiserver.admission.informers import ObjectInformer
from podwire.apiserver.admission.service_allocations import ADDRESSES, NODE_PORTS, ServiceAllocations, allocated_to
from podwire.kinds.stored import Object
from podwire.objects.names import is_ip
from podwire.protocols.k8sapi.status import ApiError, Reason, invalid, invalid_object

PORTS = range(30000, 32768)
TRIES = 64

TAKEN_ADDRESS = "provided IP is already allocated"
TAKEN_PORT = "provided port is already allocated"
STRANGE_PORT = f"provided port is not in the valid range. The range of valid ports is {PORTS[0]}-{PORTS[-1]}"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(slots=True)
class ServiceAddresses(AdmissionPlugin):
    """Gives services addresses out of `networks`, one of each family, and of all ServiceCIDRs.

    The first network is the default one; its first address is the API server's own.
    """

    allocations: ServiceAllocations
    networks: Sequence[Network]
    cidrs: ObjectInformer
    _random: random.Random = field(default_factory=random.Random)

    verbs = WRITES
    resources = frozenset({("", "services")})

    async def admit(self, operation: Operation) -> None:
        if operation.subresource:
            return
        spec = operation.obj.setdefault("spec", {})
        if operation.old is not None:
            service_types.keep(spec, operation.old["spec"])
            service_types.drop(operation.obj, operation.old["spec"])
        if not service_types.needs_address(spec):
            return
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        picked: set[str] = set()
        await self._address(operation, spec, picked)
        await self._node_ports(operation, spec, picked)
        if allocated_to(operation.obj) - allocated_to(operation.old):
            operation.reservations.append(partial(self._reserve, operation, picked))

    async def _address(self, operation: Operation, spec: Object, picked: set[str]) -> None:
        """Sets the families, and for each of them the current, requested or else a random address; validation checks
        the rest."""
        before = (operation.old or {}).get("spec") or {}
        configured = [_family(network) for network in self.networks]
        had = before if service_types.needs_address(before) and before else None
        if errors := service_families.decide(spec, had, configured):
            raise invalid_object("Service", operation.name, errors)
        addresses = list(spec.get("clusterIPs") or ())
        if addresses == [service_families.NO_ADDRESS]:
            return
        known = before.get("clusterIPs") or ()
        for index, family in enumerate(spec.get("ipFamilies") or ()):
            if index == len(addresses):
                addresses.append(await self._free(family, picked))
            elif addresses[index] not in known:
                addresses[index] = await self._given(operation, addresses[index])
        spec["clusterIP"], spec["clusterIPs"] = addresses[0], addresses

    async def _given(self, operation: Operation, address: str) -> str:
        """Returns the requested address in canonical form, if it is available."""
        if not is_ip(address):
            return address  # which validation reports
        ranges = await self._ranges(service_families.family_of(address))
        if not any(ipaddress.ip_address(address) in network for network in ranges):
            shown = ", ".join(map(str, ranges))
            raise _no_address(operation, address, f"the provided IP is not in the valid range {shown}")
        wanted = ipaddress.ip_address(address)
        if not await self.allocations.available(f"{ADDRESSES}{wanted}", operation.obj):
            raise _no_address(operation, address, TAKEN_ADDRESS)
        return str(wanted)

    async def _ranges(self, family: str) -> list[Network]:
        """Returns the ranges of a family, the default one first; of the ServiceCIDRs those that are ready."""
        more = [network for cidr in await self.cidrs.all() if is_ready(cidr) for network in networks_of(cidr)]
        return [network for network in dict.fromkeys((*self.networks, *more)) if _family(network) == family]

    async def _free(self, family: str, picked: set[str]) -> str:
        """Returns a random free address; scans all when random attempts fail."""
        store, ranges = self.allocations.store, await self._ranges(family)
        first, size = int(ranges[0].network_address), ranges[0].num_addresses
        for _ in range(TRIES):
            address = str(ipaddress.ip_address(first + self._random.randrange(1, size - 1)))
            if await store.get(f"{ADDRESSES}{address}") is None:
                picked.add(f"{ADDRESSES}{address}")
                return address
        taken = {item.key.removeprefix(ADDRESSES) for item in (await store.list(ADDRESSES)).items}
        for address in (str(host) for network in ranges for host in network.hosts()):
            if address not in taken:
                picked.add(f"{ADDRESSES}{address}")
                return address
        shown = ", ".join(map(str, ranges))
        raise ApiError(Reason.INTERNAL_ERROR, f"failed to allocate a serviceIP: range {shown} is full")

    async def _node_ports(self, operation: Operation, spec: Object, picked: set[str]) -> None:
        if spec.get("type") not in ("NodePort", "LoadBalancer"):
            return
        await self._check_ports(operation, spec)
        ports = spec.get("ports", [])
        missing = service_types.needs_node_ports(spec) and any(not port.get("nodePort") for port in ports)
        unchecked = service_types.needs_health_check(spec) and not spec.get("healthCheckNodePort")
        if not missing and not unchecked:
            return
        free = await self._free_ports()
        if missing:
            _fill_ports(operation, ports, free, picked)
        if unchecked:
            spec["healthCheckNodePort"] = _pick_port(operation, "spec.healthCheckNodePort", free, picked)

    async def _check_ports(self, operation: Operation, spec: Object) -> None:
        """Checks that the requested ports are available."""
        held = allocated_to(operation.old)
        asked = {f"spec.ports[{at}].nodePort": port.get("nodePort") for at, port in enumerate(spec.get("ports", []))}
        asked["spec.healthCheckNodePort"] = spec.get("healthCheckNodePort")
        for path, number in asked.items():
            if not number or f"{NODE_PORTS}{number}" in held:
                continue
            if number not in PORTS:
                raise _no_port(operation, path, number, STRANGE_PORT)
            if not await self.allocations.available(f"{NODE_PORTS}{number}", operation.obj):
                raise _no_port(operation, path, number, TAKEN_PORT)

    async def _free_ports(self) -> list[int]:
        page = await self.allocations.store.list(NODE_PORTS)
        taken = {int(item.key.removeprefix(NODE_PORTS)) for item in page.items}
        free = [port for port in PORTS if port not in taken]
        self._random.shuffle(free)
        return free

    async def _reserve(self, operation: Operation, picked: set[str]) -> None:
        """Reserves all that the service does not have yet; a random choice that was lost to a concurrent request is
        repeated."""
        for key in sorted(allocated_to(operation.obj) - allocated_to(operation.old)):
            wanted = key
            while not await self._take(operation, wanted):
                if wanted not in picked:
                    raise _lost(operation, wanted)
                wanted = await self._pick_again(operation, wanted, picked)

    async def _take(self, operation: Operation, key: str) -> bool:
        item = await self.allocations.take(key, operation.obj)
        if item is not None:
            operation.undos.append(partial(self.allocations.release, item))
            return True
        return await self.allocations.inherit(key, operation.obj)

    async def _pick_again(self, operation: Operation, key: str, picked: set[str]) -> str:
        spec = operation.obj["spec"]
        if key.startswith(ADDRESSES):
            lost_address = key.removeprefix(ADDRESSES)
            address = await self._free(service_families.family_of(lost_address), picked)
            spec["clusterIPs"] = [address if ip == lost_address else ip for ip in spec["clusterIPs"]]
            spec["clusterIP"] = spec["clusterIPs"][0]
            return f"{ADDRESSES}{address}"
        lost = int(key.removeprefix(NODE_PORTS))
        number = _pick_port(operation, "spec.ports", await self._free_ports(), picked, but=allocated_to(operation.obj))
        for port in spec.get("ports", []):
            if port.get("nodePort") == lost:
                port["nodePort"] = number
        if spec.get("healthCheckNodePort") == lost:
            spec["healthCheckNodePort"] = number
        return f"{NODE_PORTS}{number}"


def is_ready(cidr: Object) -> bool:
    """Returns whether a ServiceCIDR gives addresses: it is ready, and not being deleted."""
    conditions = (cidr.get("status") or {}).get("conditions") or ()
    ready = any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions)
    return ready and not cidr["metadata"].get("deletionTimestamp")


def networks_of(cidr: Object) -> list[Network]:
    return [ipaddress.ip_network(text) for text in cidr["spec"].get("cidrs") or ()]


def _fill_ports(operation: Operation, ports: list[Object], free: list[int], picked: set[str]) -> None:
    """Assigns node ports; one service port gets one node port for all its protocols."""
    asked = {f"{NODE_PORTS}{port['nodePort']}" for port in ports if port.get("nodePort")}
    chosen = {port["port"]: port["nodePort"] for port in ports if port.get("nodePort") and "port" in port}
    for index, port in enumerate(ports):
        if not port.get("nodePort"):
            number = chosen.get(port.get("port", 0))
            port["nodePort"] = number or _pick_port(operation, f"spec.ports[{index}].nodePort", free, picked, but=asked)
            chosen[port.get("port", 0)] = port["nodePort"]


def _pick_port(operation: Operation, path: str, free: list[int], picked: set[str], but: Container[str] = ()) -> int:
    while free:
        number = free.pop()
        if f"{NODE_PORTS}{number}" not in but and f"{NODE_PORTS}{number}" not in picked:
            picked.add(f"{NODE_PORTS}{number}")
            return number
    raise _no_port(operation, path, 0, "failed to allocate a nodePort: range is full")


def _lost(operation: Operation, key: str) -> ApiError:
    what = key.rpartition("/")[2]
    if key.startswith(ADDRESSES):
        return _no_address(operation, what, TAKEN_ADDRESS)
    ports = operation.obj["spec"].get("ports", [])
    at = next((index for index, port in enumerate(ports) if str(port.get("nodePort")) == what), None)
    return _no_port(
        operation, "spec.healthCheckNodePort" if at is None else f"spec.ports[{at}].nodePort", int(what), TAKEN_PORT
    )


def _no_port(operation: Operation, path: str, given: int, why: str) -> ApiError:
    return invalid_object("Service", operation.name, [invalid(path, given, why)])


def _family(network: Network) -> str:
    return f"IPv{network.version}"


def _no_address(operation: Operation, address: str, why: str) -> ApiError:
    error = invalid(
        "spec.clusterIPs",
        operation.obj["spec"].get("clusterIPs") or [address],
        f"failed to allocate IP {address}: {why}",
    )
    return invalid_object("Service", operation.name, [error])


class DenyServiceExternalIPs(AdmissionPlugin):
    """Refuses new externalIPs of services, with which a user can intercept traffic (off by default)."""

    verbs = WRITES
    resources = frozenset({("", "services")})

    async def validate(self, operation: Operation) -> None:
        if operation.subresource:
            return
        before = set(((operation.old or {}).get("spec") or {}).get("externalIPs") or ())
        if set(operation.obj["spec"].get("externalIPs") or ()) - before:
            raise operation.forbidden("Use of external IPs is denied by admission control")
