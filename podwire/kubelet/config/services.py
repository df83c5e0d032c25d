"""Environment variables of Services: NAME_SERVICE_HOST and others. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from podwire.protocols.k8sapi.watch import Object

API_SERVICE = ("default", "kubernetes")
"""The Service of the API server, whose variables pods of every namespace get."""


def service_variables(services: Sequence[Object], namespace: str, *, links: bool) -> dict[str, str]:
    """Variables of the namespace's Services if `links`, and always of the API server's."""
    visible: dict[str, Object] = {}
    for service in services:
        key = service["metadata"].get("namespace", ""), service["metadata"]["name"]
        if service["spec"].get("clusterIP") in (None, "", "None") or not service["spec"].get("ports"):
            continue
        if links and key[0] == namespace:
            visible[key[1]] = service  # overrides the API server's if it has the same name
        elif key == API_SERVICE:
            visible.setdefault(key[1], service)
    return {name: value for service in visible.values() for name, value in _variables(service)}


def _variables(service: Object) -> Iterator[tuple[str, str]]:
    prefix, address = _variable_name(service["metadata"]["name"]), service["spec"]["clusterIP"]
    ports = service["spec"]["ports"]
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(ports[0]["port"])
    for port in ports:
        if port.get("name"):
            yield f"{prefix}_SERVICE_PORT_{_variable_name(port['name'])}", str(port["port"])
    yield f"{prefix}_PORT", _url(ports[0], address)
    for port in ports:
        yield from _link(prefix, port, address)


def _link(prefix: str, port: Mapping[str, Any], address: str) -> Iterator[tuple[str, str]]:
    """Variables in the form of Docker links, which programs still read."""
    protocol = str(port.get("protocol") or "TCP")
    name = f"{prefix}_PORT_{port['port']}_{protocol.upper()}"
    yield name, _url(port, address)
    yield f"{name}_PROTO", protocol.lower()
    yield f"{name}_PORT", str(port["port"])
    yield f"{name}_ADDR", address


def _url(port: Mapping[str, Any], address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{str(port.get('protocol') or 'TCP').lower()}://{host}:{port['port']}"


def _variable_name(name: str) -> str:
    return name.upper().replace("-", "_")
