"""Where a pod's neighbours are, as variables: NAME_SERVICE_HOST and its kin. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podwire.protocols.k8sapi.watch import Object

API_SERVICE = ("default", "kubernetes")
"""The service that every pod hears of, wherever it lives: the API server itself."""


def service_variables(services: Sequence[Object], namespace: str, *, links: bool) -> dict[str, str]:
    """Of the namespace's services if `links`, and always of the API server's."""
    told: dict[str, Object] = {}
    for each in services:
        place = each["metadata"].get("namespace", ""), each["metadata"]["name"]
        if each["spec"].get("clusterIP") in (None, "", "None") or not each["spec"].get("ports"):
            continue
        if links and place[0] == namespace:
            told[place[1]] = each  # one of the same name in the pod's own namespace is nearer
        elif place == API_SERVICE:
            told.setdefault(place[1], each)
    return {name: value for each in told.values() for name, value in _variables(each)}


def _variables(service: Object) -> Iterator[tuple[str, str]]:
    prefix, address = _shout(service["metadata"]["name"]), service["spec"]["clusterIP"]
    ports = service["spec"]["ports"]
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(ports[0]["port"])
    for each in ports:
        if each.get("name"):
            yield f"{prefix}_SERVICE_PORT_{_shout(each['name'])}", str(each["port"])
    yield f"{prefix}_PORT", _url(ports[0], address)
    for each in ports:
        yield from _link(prefix, each, address)


def _link(prefix: str, port: Mapping[str, Any], address: str) -> Iterator[tuple[str, str]]:
    """As Docker's links once named them; programs still read these."""
    protocol = str(port.get("protocol") or "TCP")
    name = f"{prefix}_PORT_{port['port']}_{protocol.upper()}"
    yield name, _url(port, address)
    yield f"{name}_PROTO", protocol.lower()
    yield f"{name}_PORT", str(port["port"])
    yield f"{name}_ADDR", address


def _url(port: Mapping[str, Any], address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{str(port.get('protocol') or 'TCP').lower()}://{host}:{port['port']}"


def _shout(name: str) -> str:
    return name.upper().replace("-", "_")
