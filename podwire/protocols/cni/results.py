"""Results of a plugin, in the forms of all versions.

| version | shape |
|---|---|
| 0.1.0, 0.2.0 | `ip4`, `ip6`: the first address of each family, its gateway and routes; no interfaces |
| 0.3.0 - 0.4.0 | `interfaces`, `ips` with their `version`, `routes` |
| 1.0.0 | the same, `ips` without `version` |
| 1.1.0 | interfaces tell mtu, socketPath, pciID; routes mtu, advmss, priority, table, scope |
"""

from typing import Any, NamedTuple

from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Address, Network, Object, address, looked_up, network, taken, taken_list
from podwire.protocols.cni.values import Interface as IpInterface
from podwire.protocols.cni.values import interface as ip_interface
from podwire.protocols.cni.versions import at_least


class Interface(NamedTuple):
    """A link, in the pod (`sandbox` is the path of its namespace) or, without one, on the host."""

    name: str
    mac: str = ""
    sandbox: str = ""
    mtu: int = 0
    socket_path: str = ""
    pci_id: str = ""


class IP(NamedTuple):
    address: IpInterface
    gateway: Address | None = None
    interface: int | None = None
    """Index into the result's interfaces."""


class Route(NamedTuple):
    dst: Network
    gw: Address | None = None
    mtu: int = 0
    advmss: int = 0
    priority: int = 0
    table: int | None = None
    scope: int | None = None
    host: Address | None = None
    """The address of the destination as it was given, if it has bits beyond its prefix: results repeat it."""


class DNS(NamedTuple):
    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class Result(NamedTuple):
    interfaces: tuple[Interface, ...] = ()
    ips: tuple[IP, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: DNS = DNS()


_LINK_EXTRAS = (("mtu", "mtu"), ("socketPath", "socket_path"), ("pciID", "pci_id"))
_ROUTE_EXTRAS = ("mtu", "advmss", "priority", "table", "scope")
_FAMILIES = ((4, "ip4"), (6, "ip6"))


def decode(value: object, version: str, where: str = "result") -> Result:
    """The result that a peer means, in the shape of the version that it names, else of the one that was asked for."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise CniError(Code.UNDECODABLE, f"{where}: not a JSON object")
    shape = taken(value, "cniVersion", str, "") or version
    dns = decode_dns(taken(value, "dns", dict, {}), f"{where}.dns.")
    if not at_least(shape, "0.3.0"):
        return _decode_by_family(value, dns, where)
    links = taken_list(value, "interfaces", dict, f"{where}.")
    ips = taken_list(value, "ips", dict, f"{where}.")
    routes = taken_list(value, "routes", dict, f"{where}.")
    return Result(
        tuple(_decode_link(link, f"{where}.interfaces[{at}].") for at, link in enumerate(links)),
        tuple(_decode_ip(ip, len(links), f"{where}.ips[{at}].") for at, ip in enumerate(ips)),
        tuple(decode_route(route, f"{where}.routes[{at}].") for at, route in enumerate(routes)),
        dns,
    )


def _decode_by_family(value: Object, dns: DNS, where: str) -> Result:
    ips: list[IP] = []
    routes: list[Route] = []
    for _, key in _FAMILIES:
        encoded = taken(value, key, dict, {}, f"{where}.")
        if encoded:
            gateway = address(encoded["gateway"], f"{where}.{key}.gateway") if encoded.get("gateway") else None
            ips.append(IP(ip_interface(encoded.get("ip"), f"{where}.{key}.ip"), gateway))
            listed = taken_list(encoded, "routes", dict, f"{where}.{key}.")
            routes += (decode_route(route, f"{where}.{key}.routes[{at}].") for at, route in enumerate(listed))
    return Result((), tuple(ips), tuple(routes), dns)


def _decode_link(value: Object, where: str) -> Interface:
    return Interface(
        name=taken(value, "name", str, "", where),
        mac=taken(value, "mac", str, "", where),
        sandbox=taken(value, "sandbox", str, "", where),
        mtu=taken(value, "mtu", int, 0, where),
        socket_path=taken(value, "socketPath", str, "", where),
        pci_id=taken(value, "pciID", str, "", where),
    )


def _decode_ip(value: Object, links: int, where: str) -> IP:
    index = value.get("interface")
    if index is not None and not 0 <= taken(value, "interface", int, 0, where) < links:
        raise CniError(Code.UNDECODABLE, f"{where}interface: out of range, no interface {index}")
    gateway = address(value["gateway"], f"{where}gateway") if value.get("gateway") else None
    return IP(ip_interface(value.get("address"), f"{where}address"), gateway, index)


def decode_route(value: Object, where: str) -> Route:
    """A route of a result, or of an IPAM configuration: both are written alike."""
    table, scope = value.get("table"), value.get("scope")
    dst = network(value.get("dst"), f"{where}dst")
    given = ip_interface(value.get("dst"), f"{where}dst").ip
    return Route(
        dst=dst,
        host=given if given != dst.network_address else None,
        gw=address(value["gw"], f"{where}gw") if value.get("gw") else None,
        mtu=taken(value, "mtu", int, 0, where),
        advmss=taken(value, "advmss", int, 0, where),
        priority=taken(value, "priority", int, 0, where),
        table=None if table is None else taken(value, "table", int, 0, where),
        scope=None if scope is None else taken(value, "scope", int, 0, where),
    )


def decode_dns(value: Object, where: str) -> DNS:
    return DNS(
        nameservers=tuple(taken_list(value, "nameservers", str, where)),
        domain=taken(value, "domain", str, "", where),
        search=tuple(taken_list(value, "search", str, where)),
        options=tuple(taken_list(value, "options", str, where)),
    )


def overriding_dns(value: Object, where: str) -> DNS | None:
    """Returns the DNS of a plugin's configuration if it overrides that of IPAM: an empty list does, too."""
    dns = decode_dns(value, where)
    lists = (looked_up(value, key) for key in ("nameservers", "search", "options"))
    return dns if dns.domain or any(listed is not None for listed in lists) else None


def encode(result: Result, version: str) -> Object:
    """The JSON object of a result in the shape of a version; what that has no place for is left out."""
    if not at_least(version, "0.3.0"):
        return _encode_by_family(result, version)
    with_extras, with_family = at_least(version, "1.1.0"), not at_least(version, "1.0.0")
    encoded: Object = {"cniVersion": version}
    if result.interfaces:
        encoded["interfaces"] = [_encode_link(interface, with_extras) for interface in result.interfaces]
    if result.ips:
        encoded["ips"] = [_encode_ip(ip, with_family) for ip in result.ips]
    if result.routes:
        encoded["routes"] = [_encode_route(route, with_extras) for route in result.routes]
    if result.dns != DNS() or with_family:
        encoded["dns"] = encode_dns(result.dns)
    return encoded


def _encode_by_family(result: Result, version: str) -> Object:
    encoded: Object = {"cniVersion": version}
    for family, key in _FAMILIES:
        first = next((ip for ip in result.ips if ip.address.version == family), None)
        if first is not None:
            encoded[key] = {"ip": str(first.address)} | ({"gateway": str(first.gateway)} if first.gateway else {})
            routes = [_encode_route(route, False) for route in result.routes if route.dst.version == family]
            encoded[key] |= {"routes": routes} if routes else {}
    if not result.ips:
        reason = f"a result without addresses has no form in version {version}"
        raise CniError(Code.INCOMPATIBLE_VERSION, "cannot convert: no valid IP addresses", reason)
    return {**encoded, "dns": encode_dns(result.dns)}


def _encode_link(link: Interface, with_extras: bool) -> Object:
    encoded: Object = {"name": link.name}
    encoded |= {"mac": link.mac} if link.mac else {}
    encoded |= {"sandbox": link.sandbox} if link.sandbox else {}
    if with_extras:
        encoded |= {key: value for key, field in _LINK_EXTRAS if (value := getattr(link, field))}
    return encoded


def _encode_ip(ip: IP, with_family: bool) -> Object:
    encoded: Object = {"version": str(ip.address.version)} if with_family else {}
    encoded |= {} if ip.interface is None else {"interface": ip.interface}
    encoded["address"] = str(ip.address)
    return encoded | ({"gateway": str(ip.gateway)} if ip.gateway else {})


def _encode_route(route: Route, with_extras: bool) -> Object:
    dst = str(route.dst) if route.host is None else f"{route.host}/{route.dst.prefixlen}"
    encoded: Object = {"dst": dst} | ({"gw": str(route.gw)} if route.gw else {})
    if with_extras:
        values: list[tuple[str, Any]] = [(key, getattr(route, key)) for key in _ROUTE_EXTRAS]
        # Table and scope 0 say something, the others say nothing with 0.
        encoded |= {key: value for key, value in values if value or (value == 0 and key in ("table", "scope"))}
    return encoded


def encode_dns(dns: DNS) -> Object:
    lists = {"nameservers": dns.nameservers, "search": dns.search, "options": dns.options}
    encoded: Object = {key: list(value) for key, value in lists.items() if value}
    return encoded | ({"domain": dns.domain} if dns.domain else {})
