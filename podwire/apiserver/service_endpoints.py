"""Endpoints of Services: the address to which a request for a Service is sent.

The API server connects to pods and other endpoints directly; cluster IPs are translated on nodes only, and the API
server need not run on one. In a cluster of `podwire up` the host has a route to the pods of every node.

A caller that has a Service reference (an admission webhook, an APIService, a conversion webhook) does this:

    endpoint = await ServiceEndpoints(engine.store).find(namespace, name, port)     # raises ApiError: 404, 503
    connect to endpoint.address, endpoint.port; over TLS with the server name f"{name}.{namespace}.svc"

Each call chooses one of the ready endpoints at random; a caller whose connection fails may call again.
"""

import ipaddress
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

from podwire.apiserver.ports import Store
from podwire.kinds.resource import PREFIX
from podwire.kinds.stored import Object, unpack
from podwire.protocols.k8sapi.status import ApiError, Reason, not_found

SERVICE_NAME = "kubernetes.io/service-name"
SERVICES, SLICES, _PODS = f"{PREFIX}services/specs/", f"{PREFIX}endpointslices/", f"{PREFIX}pods/"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that serves a Service: an IP address, or the host name of an ExternalName Service."""

    address: str
    port: int


class ServiceEndpoints:
    """Chooses endpoints of Services from their EndpointSlices."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, namespace: str, name: str, port: int) -> Endpoint:
        """Returns a ready endpoint of a Service's port.

        Raises ApiError: 404 without the Service, 503 without such a port or without a ready endpoint.
        """
        service = await self._service(namespace, name)
        spec = service["spec"]
        if spec.get("type") == "ExternalName":
            return Endpoint(spec["externalName"], port)
        families = spec.get("ipFamilies") or []
        port_name = service_port_name(service, port)
        candidates = [candidate async for candidate in self._ready(namespace, name, port_name)]
        if not candidates:
            raise no_endpoints(name)
        primary = [candidate for candidate in candidates if families[:1] == [candidate[0]]]
        _, endpoint, _ = random.choice(primary or candidates)
        return endpoint

    async def find_pod(self, namespace: str, name: str, port: str) -> Endpoint:
        """Returns an endpoint for the proxy of a Service: a ready one that is an existing pod's own address.

        `port` is a number or a name of the Service's ports; empty for the port without a name. Raises ApiError.
        """
        service = await self._service(namespace, name)
        port_name = service_port_name(service, int(port)) if port.isascii() and port.isdigit() else port
        candidates = [candidate async for candidate in self._ready(namespace, name, port_name)]
        random.shuffle(candidates)
        for _, endpoint, target in candidates:
            if await self._is_of_pod(namespace, endpoint.address, target):
                return endpoint
        raise no_endpoints(name)

    async def _service(self, namespace: str, name: str) -> Object:
        item = await self._store.get(f"{SERVICES}{namespace}/{name}")
        if item is None:
            raise not_found("services", name)
        return unpack(item)

    async def _ready(self, namespace: str, name: str, port_name: str) -> AsyncIterator[tuple[str, Endpoint, Object]]:
        """Yields the family, endpoint and targetRef of each ready endpoint."""
        page = await self._store.list(f"{SLICES}{namespace}/")
        needle = name.encode()
        for item in page.items:
            if needle not in item.value:  # saves decoding the slices of other services
                continue
            endpoint_slice = unpack(item)
            if endpoint_slice["metadata"].get("labels", {}).get(SERVICE_NAME) != name:
                continue
            ports = [port for port in endpoint_slice.get("ports") or () if (port.get("name") or "") == port_name]
            numbers = [port["port"] for port in ports if port.get("port") is not None]
            if not numbers or endpoint_slice.get("addressType") not in ("IPv4", "IPv6"):
                continue
            for endpoint in endpoint_slice.get("endpoints") or ():
                if endpoint.get("conditions", {}).get("ready") in (None, True) and endpoint.get("addresses"):
                    chosen = Endpoint(endpoint["addresses"][0], numbers[0])
                    yield endpoint_slice["addressType"], chosen, endpoint.get("targetRef") or {}

    async def _is_of_pod(self, namespace: str, address: str, target: Object) -> bool:
        if target.get("kind", "Pod") != "Pod" or target.get("namespace") != namespace or not target.get("name"):
            return False
        item = await self._store.get(f"{_PODS}{namespace}/{target['name']}")
        ips = unpack(item).get("status", {}).get("podIPs", []) if item is not None else []
        return any(ip.get("ip") == address for ip in ips)


def service_port_name(service: Object, port: int) -> str:
    """Returns the name of a Service's port; raises ApiError without such a port."""
    for candidate in service["spec"].get("ports") or ():
        if candidate["port"] == port:
            return candidate.get("name") or ""
    name = service["metadata"]["name"]
    raise ApiError(Reason.SERVICE_UNAVAILABLE, f'no service port {port} found for service "{name}"')


def no_endpoints(name: str) -> ApiError:
    return ApiError(Reason.SERVICE_UNAVAILABLE, f'no endpoints available for service "{name}"')


def is_global_unicast(address: str) -> bool:
    """Returns whether an address may be connected to for a user: neither loopback, link-local, multicast nor such."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    broadcast = ip == ipaddress.IPv4Address("255.255.255.255")
    return not (ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local or broadcast)
