"""The objects of the cluster that names are made of, by the keys by which they are looked up. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from podwire.protocols.k8sapi.watch import Object

SERVICE_NAME = "kubernetes.io/service-name"

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    protocol: str
    """In lower case, as in names."""
    number: int


@dataclass(frozen=True, slots=True)
class Service:
    addresses: tuple[str, ...]
    ports: tuple[Port, ...]
    headless: bool
    external_name: str


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A ready endpoint: one address, and its name below the Service."""

    hostname: str
    address: str
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Slice:
    service: Key
    endpoints: tuple[Endpoint, ...]


class Index:
    """Services, endpoints and namespaces, kept up to date object by object."""

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self._services: dict[Key, Service] = {}
        self._service_ips: dict[str, dict[Key, None]] = {}
        self._slices: dict[Key, Slice] = {}
        self._slices_of: dict[Key, dict[Key, None]] = {}
        self._endpoint_ips: dict[str, dict[tuple[Key, str], int]] = {}

    def service(self, key: Key) -> Service | None:
        return self._services.get(key)

    def services(self) -> Mapping[Key, Service]:
        return self._services

    def endpoints(self, service: Key) -> Iterator[Endpoint]:
        """Yields the ready endpoints of a Service, those of several slices once."""
        seen = set()
        for key in self._slices_of.get(service, ()):
            for endpoint in self._slices[key].endpoints:
                if endpoint not in seen:
                    seen.add(endpoint)
                    yield endpoint

    def at(self, address: str) -> list[tuple[Key, str]]:
        """Returns the Services that have a cluster IP, else the endpoints at an address: Service and host name."""
        if services := self._service_ips.get(address):
            return [(key, "") for key in services]
        return [key for key in self._endpoint_ips.get(address, ()) if key[0] in self._services]

    def set_namespace(self, name: str, *, exists: bool) -> bool:
        """Returns whether anything changed; so do the other setters."""
        if exists == (name in self.namespaces):
            return False
        (self.namespaces.add if exists else self.namespaces.discard)(name)
        return True

    def set_service(self, key: Key, object_: Object | None) -> bool:
        service = None if object_ is None else read_service(object_)
        before = self._services.get(key)
        if service == before:
            return False
        if before is not None:
            del self._services[key]
            for address in before.addresses:
                _drop(self._service_ips, address, key)
        if service is not None:
            self._services[key] = service
            for address in service.addresses:
                self._service_ips.setdefault(address, {})[key] = None
        return True

    def set_slice(self, key: Key, object_: Object | None) -> bool:
        slice_ = None if object_ is None else read_slice(object_)
        before = self._slices.get(key)
        if slice_ == before:
            return False
        if before is not None:
            del self._slices[key]
            _drop(self._slices_of, before.service, key)
            for endpoint in before.endpoints:
                names = self._endpoint_ips[endpoint.address]
                name = before.service, endpoint.hostname
                names[name] -= 1
                if not names[name]:
                    _drop(self._endpoint_ips, endpoint.address, name)
        if slice_ is not None:
            self._slices[key] = slice_
            self._slices_of.setdefault(slice_.service, {})[key] = None
            for endpoint in slice_.endpoints:
                names = self._endpoint_ips.setdefault(endpoint.address, {})
                name = slice_.service, endpoint.hostname
                names[name] = names.get(name, 0) + 1
        return True


def _drop(index: dict[Any, dict[Any, Any]], first: Any, second: Any) -> None:
    index[first].pop(second, None)
    if not index[first]:
        del index[first]


def read_service(object_: Object) -> Service:
    spec = object_.get("spec") or {}
    external = spec.get("externalName") or "" if spec.get("type") == "ExternalName" else ""
    own = spec.get("clusterIP") or ""
    given = [] if external else spec.get("clusterIPs") or [own]
    ports = _ports(spec.get("ports") or ())
    return Service(tuple(_addresses(given)), ports, not external and own in ("None", ""), external.rstrip("."))


def read_slice(object_: Object) -> Slice | None:
    """Returns None for a slice of addresses that names cannot have."""
    meta = object_.get("metadata") or {}
    service = (meta.get("labels") or {}).get(SERVICE_NAME)
    if not service or object_.get("addressType") == "FQDN":
        return None
    ports = _ports(object_.get("ports") or ())
    endpoints = [
        Endpoint((endpoint.get("hostname") or dashed(address)).lower(), address, ports)
        for endpoint in object_.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in _addresses(endpoint.get("addresses") or ())
    ]
    return Slice((meta.get("namespace", ""), service), tuple(endpoints))


def dashed(address: str) -> str:
    """Returns the name of an endpoint without a host name: `10-1-2-3`; a label must not end in a hyphen: `fd00--0`."""
    label = address.replace(".", "-").replace(":", "-")
    return f"{label}0" if label.endswith("-") else label


def _ports(rows: Iterable[Mapping[str, Any]]) -> tuple[Port, ...]:
    ports = []
    for row in rows:
        number = row.get("port")
        if isinstance(number, int):
            ports.append(Port((row.get("name") or "").lower(), (row.get("protocol") or "TCP").lower(), number))
    return tuple(ports)


def _addresses(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        try:
            yield str(ip_address(text))
        except ValueError:
            continue
