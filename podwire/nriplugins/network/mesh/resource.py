"""PodMesh as a value, read strictly: the same rules as in its definition, and those that no schema can tell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podwire.linux.values import IP, Network
from podwire.nriplugins.network.resources import Broken, Head, head_of
from podwire.nriplugins.network.strict_reader import COMMON, Reader
from podwire.protocols.k8sapi.status import duplicate, forbidden, required

KIND = "PodMesh"
MOST_EXCLUDED = 64
LARGEST_ID, LARGEST_MARK, LARGEST_PORT = 2**32 - 2, 2**32 - 1, 65535
_FIELDS = *COMMON, "proxy", "inbound", "outbound"
_PROXY = "uid", "gid", "mark", "addresses"
_INBOUND = "port", "excludeCIDRs", "excludePorts"
_OUTBOUND = *_INBOUND, "excludeUIDs", "excludeGIDs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """By what the proxy's own connections are known, so that they are not led back to it."""

    uid: int | None = None
    gid: int | None = None
    mark: int | None = None
    """The mark that a proxy of the node sets on the sockets that it opens in the pod's namespace."""
    addresses: tuple[IP, ...] = ()
    """The addresses of the proxy when it is not in the pod's namespace: at most one of each family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Direction:
    """Connections that go to the proxy's port, but for those excluded."""

    port: int
    cidrs: tuple[Network, ...] = ()
    """Sources of inbound, destinations of outbound connections."""
    ports: tuple[int, ...] = ()
    uids: tuple[int, ...] = ()
    gids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMesh:
    head: Head
    proxy: Proxy
    inbound: Direction | None = None
    outbound: Direction | None = None


def read(object_: Mapping[str, Any]) -> PodMesh | Broken:
    """A PodMesh of the API; Broken, with what is wrong, when it cannot be one."""
    head, reader = head_of(object_), Reader()
    spec = reader.fields(object_.get("spec"), "spec", _FIELDS)
    reader.common(spec, "spec")
    mesh = PodMesh(
        head=head,
        proxy=_proxy(reader, spec.get("proxy", {})),
        inbound=_direction(reader, spec.get("inbound"), "spec.inbound", _INBOUND),
        outbound=_direction(reader, spec.get("outbound"), "spec.outbound", _OUTBOUND),
    )
    proxy = mesh.proxy
    known = proxy.uid is not None or proxy.gid is not None or proxy.mark is not None
    if mesh.inbound is None and mesh.outbound is None and not reader.errors:
        reader.errors.append(required("spec", "inbound or outbound"))
    if mesh.outbound is not None and not known and not proxy.addresses:
        reader.errors.append(
            required("spec.proxy", "uid, gid or mark: without one the proxy's own connections would be led back to it")
        )
    if mesh.inbound is not None and proxy.addresses:
        reader.errors.append(
            forbidden("spec.inbound", "what comes to the pod can only be redirected to a proxy in its namespace")
        )
    return Broken(head, tuple(reader.errors)) if reader.errors else mesh


def _proxy(reader: Reader, value: Any) -> Proxy:
    path = "spec.proxy"
    fields = reader.fields(value, path, _PROXY)
    addresses: tuple[IP, ...] = reader.listed(fields.get("addresses"), f"{path}.addresses", 2, reader.address)
    if len({address.version for address in addresses}) < len(addresses):
        reader.errors.append(duplicate(f"{path}.addresses[1]", str(addresses[1])))
    # Of root, all that runs as root in the pod would pass by the proxy.
    return Proxy(
        uid=reader.optional(fields, "uid", path, 1, LARGEST_ID),
        gid=reader.optional(fields, "gid", path, 1, LARGEST_ID),
        mark=reader.optional(fields, "mark", path, 1, LARGEST_MARK),
        addresses=addresses,
    )


def _direction(reader: Reader, value: Any, path: str, known: tuple[str, ...]) -> Direction | None:
    if value is None:
        return None
    fields = reader.fields(value, path, known)
    port = reader.integer(fields.get("port"), f"{path}.port", 1, LARGEST_PORT)
    cidrs: tuple[Network, ...] = reader.listed(
        fields.get("excludeCIDRs"), f"{path}.excludeCIDRs", MOST_EXCLUDED, reader.network
    )
    return Direction(
        port=port or 0,
        cidrs=cidrs,
        ports=_numbers(reader, fields, "excludePorts", path, 1, LARGEST_PORT),
        uids=_numbers(reader, fields, "excludeUIDs", path, 0, LARGEST_ID),
        gids=_numbers(reader, fields, "excludeGIDs", path, 0, LARGEST_ID),
    )


def _numbers(reader: Reader, fields: Mapping[str, Any], name: str, path: str, least: int, most: int) -> tuple[int, ...]:
    def number(item: Any, where: str) -> int | None:
        return reader.integer(item, where, least, most)

    return reader.listed(fields.get(name), f"{path}.{name}", MOST_EXCLUDED, number)
