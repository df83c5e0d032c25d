"""Configuration of the portmap plugin: which host ports lead to a pod. Pure."""

from typing import NamedTuple

from podwire.cniplugins import nat
from podwire.linux.nft import keys
from podwire.linux.nft.values import Element
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Address, Interface, Object, address, looked_up, taken, taken_list

PROTOCOLS = ("tcp", "udp", "sctp")
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "backend": ("", "nftables"),
    "markMasqBit": (),
    "externalSetMarkChain": ("",),
    "conditionsV4": ([],),
    "conditionsV6": ([],),
}


class Mapping(NamedTuple):
    protocol: str
    host_port: int
    container_port: int
    host_ip: Address | None = None
    """None: any local address; unspecified (0.0.0.0, ::): any local address of its family."""


class Settings(NamedTuple):
    mappings: tuple[Mapping, ...]
    snat: bool
    """Whether packets from this host and from the pod's own subnet are masqueraded, so that replies come back."""
    masq_all: bool


def parse_settings(config: PluginConfig) -> Settings:
    for key, harmless in _UNSUPPORTED.items():
        value = looked_up(config.raw, key)
        if value is not None and value not in harmless:
            raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: {value!r} is not supported by podwire's portmap")
    listed = taken_list(config.runtime, "portmappings", dict, "runtimeConfig.")
    mappings = [_mapping(raw, f"runtimeConfig.portMappings[{index}].") for index, raw in enumerate(listed)]
    return Settings(
        mappings=tuple(dict.fromkeys(mappings)),
        snat=taken(config.raw, "snat", bool, True),
        masq_all=taken(config.raw, "masqAll", bool, False),
    )


def _mapping(value: Object, where: str) -> Mapping:
    """Keys of `runtimeConfig` are in lower case already, whatever the runtime wrote."""
    protocol = (taken(value, "protocol", str, "", where) or "tcp").lower()
    if protocol not in PROTOCOLS:
        raise CniError(Code.BAD_CONFIG, f"{where}protocol: {protocol!r} must be one of {', '.join(PROTOCOLS)}")
    host_ip = taken(value, "hostip", str, "", where)
    return Mapping(
        protocol=protocol,
        host_port=_port(value, "hostPort", where),
        container_port=_port(value, "containerPort", where),
        host_ip=address(host_ip, f"{where}hostIP") if host_ip else None,
    )


def _port(value: Object, key: str, where: str) -> int:
    port = taken(value, key.lower(), int, 0, where)
    if not 0 < port < 1 << 16:
        raise CniError(Code.BAD_CONFIG, f"{where}{key}: {port} is not a port")
    return port


def addresses(result: Result) -> dict[int, Interface]:
    """Returns the pod's first address of each family."""
    first: dict[int, Interface] = {}
    for ip in result.ips:
        if ip.interface is None or result.interfaces[ip.interface].sandbox:
            first.setdefault(ip.address.version, ip.address)
    return first


def elements(settings: Settings, pod: dict[int, Interface], comment: str) -> list[tuple[str, Element]]:
    """Returns the elements of the nft maps that a pod needs."""
    elements = [
        _element(mapping, interface, comment)
        for mapping in settings.mappings
        for family, interface in pod.items()
        if mapping.host_ip is None or mapping.host_ip.version == family
    ]
    mapped = {name[-1] for name, _ in elements}
    if settings.snat:
        reached = [interface for family, interface in pod.items() if str(family) in mapped]
        elements += [nat.jump(nat.HAIRPIN, interface, comment, all_sources=settings.masq_all) for interface in reached]
    return elements


def _element(mapping: Mapping, pod: Interface, comment: str) -> tuple[str, Element]:
    port = [keys.protocol(mapping.protocol), keys.port(mapping.host_port)]
    target = keys.joined(keys.address(pod.ip), keys.port(mapping.container_port))
    if mapping.host_ip is None or mapping.host_ip.is_unspecified:
        return f"{nat.PORTS}{pod.version}", Element(keys.joined(*port), target, comment)
    return f"{nat.PORTS_AT}{pod.version}", Element(keys.joined(keys.address(mapping.host_ip), *port), target, comment)


def describe_port(key: bytes) -> str:
    """Formats the port of a map's key, as `tcp 80`."""
    protocol = next(name for name, number in keys.PROTOCOLS.items() if number == key[-8])
    return f"{protocol} {int.from_bytes(key[-4:-2], 'big')}"
