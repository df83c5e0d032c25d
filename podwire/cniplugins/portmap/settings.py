"""Which ports of the host lead to a pod. Pure."""

from typing import NamedTuple

from podwire.cniplugins import nat
from podwire.linux.nft import keys
from podwire.linux.values import Element
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Address, Interface, Object, address, looked_up, taken, taken_list

PROTOCOLS = ("tcp", "udp", "sctp")
_REFUSED: dict[str, tuple[object, ...]] = {
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
    """Any local address of its family when it is unspecified (0.0.0.0, ::), of both when it is None."""


class Settings(NamedTuple):
    mappings: tuple[Mapping, ...]
    snat: bool
    """Whether those from this host or the pod's own subnet are masqueraded, so that they get answers."""
    masq_all: bool


def parse_settings(config: PluginConfig) -> Settings:
    for key, harmless in _REFUSED.items():
        value = looked_up(config.raw, key)
        if value is not None and value not in harmless:
            raise CniError(Code.UNSUPPORTED_FIELD, f"{key}: {value!r} is not supported by podwire's portmap")
    listed = taken_list(config.runtime, "portmappings", dict, "runtimeConfig.")
    mappings = [_mapping(each, f"runtimeConfig.portMappings[{at}].") for at, each in enumerate(listed)]
    return Settings(
        mappings=tuple(dict.fromkeys(mappings)),
        snat=taken(config.raw, "snat", bool, True),
        masq_all=taken(config.raw, "masqAll", bool, False),
    )


def _mapping(value: Object, where: str) -> Mapping:
    """The keys are in lower case already, whatever the runtime wrote."""
    protocol = (taken(value, "protocol", str, "", where) or "tcp").lower()
    if protocol not in PROTOCOLS:
        raise CniError(Code.BAD_CONFIG, f"{where}protocol: {protocol!r} is none of {', '.join(PROTOCOLS)}")
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
        raise CniError(Code.BAD_CONFIG, f"{where}{key}: {port} is no port")
    return port


def addresses(result: Result) -> dict[int, Interface]:
    """The pod's first address of each family."""
    found: dict[int, Interface] = {}
    for each in result.ips:
        if each.interface is None or result.interfaces[each.interface].sandbox:
            found.setdefault(each.address.version, each.address)
    return found


def elements(settings: Settings, pod: dict[int, Interface], comment: str) -> list[tuple[str, Element]]:
    """The elements of the maps that a pod needs."""
    wanted = [
        _element(each, interface, comment)
        for each in settings.mappings
        for family, interface in pod.items()
        if each.host_ip is None or each.host_ip.version == family
    ]
    mapped = {name[-1] for name, _ in wanted}
    if settings.snat:
        reached = [interface for family, interface in pod.items() if str(family) in mapped]
        wanted += [nat.jump(nat.HAIRPIN, each, comment, everybody=settings.masq_all) for each in reached]
    return wanted


def _element(mapping: Mapping, pod: Interface, comment: str) -> tuple[str, Element]:
    where = [keys.protocol(mapping.protocol), keys.port(mapping.host_port)]
    to = keys.joined(keys.address(pod.ip), keys.port(mapping.container_port))
    if mapping.host_ip is None or mapping.host_ip.is_unspecified:
        return f"{nat.PORTS}{pod.version}", Element(keys.joined(*where), to, comment)
    return f"{nat.PORTS_AT}{pod.version}", Element(keys.joined(keys.address(mapping.host_ip), *where), to, comment)


def told(key: bytes) -> str:
    """The port of a map's key, for people."""
    protocol = next(name for name, number in keys.PROTOCOLS.items() if number == key[-8])
    return f"{protocol} {int.from_bytes(key[-4:-2], 'big')}"
