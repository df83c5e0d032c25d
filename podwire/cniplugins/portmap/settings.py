"""Configuration of the portmap plugin: which host ports lead to a pod. Pure."""

import re
from typing import NamedTuple

from podwire.cniplugins import nat
from podwire.linux.nft import keys
from podwire.linux.nft.values import Element
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import Result
from podwire.protocols.cni.values import Address, Interface, Object, address, looked_up, taken, taken_list

PROTOCOLS = ("tcp", "udp", "sctp")
BACKENDS = ("", "nftables", "iptables")
_OF_IPTABLES: dict[str, tuple[object, ...]] = {
    "markMasqBit": (),
    "externalSetMarkChain": ("",),
    "conditionsV4": ([],),
    "conditionsV6": ([],),
}
"""Keys that nftables does not have, with the values that make no difference."""
_MARK_BIT, _MARK_BITS = 13, 32
_CHAIN = re.compile(r"[A-Za-z0-9_.-]{1,28}", re.ASCII)


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
    iptables: "IptablesSettings | None" = None
    """None: nftables."""


class IptablesSettings(NamedTuple):
    mark_bit: int = _MARK_BIT
    """The bit of the mark of packets that are masqueraded."""
    external_chain: str = ""
    """A chain of another program that sets its own mark."""
    conditions: dict[int, list[str]] = {}  # noqa: RUF012 - never changed
    """Further words of the rules that lead to a pod, by family."""


def _parse_backend(config: PluginConfig) -> IptablesSettings | None:
    raw = config.raw
    backend = taken(raw, "backend", str, "")
    if backend not in BACKENDS:
        raise CniError(Code.UNSUPPORTED_FIELD, f"backend: {backend!r} must be one of {', '.join(BACKENDS[1:])}")
    if backend != "iptables":
        for key, harmless in _OF_IPTABLES.items():
            value = looked_up(raw, key)
            if value is not None and value not in harmless:
                message = f"{key}: {value!r} is not supported by podwire's portmap without `backend: iptables`"
                raise CniError(Code.UNSUPPORTED_FIELD, message)
        return None
    bit, chain = taken(raw, "markMasqBit", int, _MARK_BIT), taken(raw, "externalSetMarkChain", str, "")
    if not 0 <= bit < _MARK_BITS:
        message = f"failed to parse config: MasqMarkBit must be between 0 and {_MARK_BITS - 1}"
        raise CniError(Code.BAD_CONFIG, message, f"markMasqBit: {bit}")
    if chain and looked_up(raw, "markMasqBit") is not None:
        message = "failed to parse config: Cannot specify externalSetMarkChain and markMasqBit"
        raise CniError(Code.BAD_CONFIG, message, "they exclude each other")
    if chain and not _CHAIN.fullmatch(chain):
        raise CniError(Code.BAD_CONFIG, f"externalSetMarkChain: {chain!r} is not the name of a chain")
    return IptablesSettings(bit, chain, {family: taken_list(raw, f"conditionsV{family}", str) for family in (4, 6)})


def parse_settings(config: PluginConfig) -> Settings:
    iptables = _parse_backend(config)
    listed = taken_list(config.runtime, "portmappings", dict, "runtimeConfig.")
    mappings = [_mapping(raw, f"runtimeConfig.portMappings[{index}].") for index, raw in enumerate(listed)]
    return Settings(
        mappings=tuple(dict.fromkeys(mappings)),
        snat=taken(config.raw, "snat", bool, True),
        masq_all=taken(config.raw, "masqAll", bool, False),
        iptables=iptables,
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
        kind = "host" if key == "hostPort" else "container"
        message = f"failed to parse config: Invalid {kind} port number: {port}"
        raise CniError(Code.BAD_CONFIG, message, f"{where}{key}: {port} is not a port")
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


def chain_entries(settings: Settings, pod: Interface, set_mark: str) -> tuple[dict[str, list[int]], list[str]]:
    """Returns the host ports by protocol, and the rules of a pod's chain of iptables: marks before each target."""
    ports: dict[str, list[int]] = {}
    entries: list[str] = []
    anywhere = "0.0.0.0/0" if pod.version == 4 else "::/0"
    sources = [anywhere if settings.masq_all else str(pod.network)]
    sources += ["127.0.0.1/32"] if pod.version == 4 and not settings.masq_all else []
    for mapping in settings.mappings:
        if mapping.host_ip is not None and mapping.host_ip.version != pod.version:
            continue
        ports.setdefault(mapping.protocol, []).append(mapping.host_port)
        port = f"-p {mapping.protocol} -m {mapping.protocol} --dport {mapping.host_port}"
        named = mapping.host_ip is not None and not mapping.host_ip.is_unspecified
        port = f"-d {mapping.host_ip} {port}" if named else port
        entries += [f"-s {source} {port} -j {set_mark}" for source in sources if settings.snat]
        entries.append(f"{port} -j DNAT --to-destination {target(mapping, pod)}")
    return {protocol: sorted(set(numbers)) for protocol, numbers in sorted(ports.items())}, entries


def reference_rules(settings: Settings, pod: Interface) -> list[str]:
    """Returns the nft rules by which the reference plugin maps host ports to an address of a pod."""
    ip = "ip" if pod.version == 4 else "ip6"
    rules = []
    for mapping in settings.mappings:
        if mapping.host_ip is None or mapping.host_ip.version == pod.version:
            named = mapping.host_ip is not None and not mapping.host_ip.is_unspecified
            port = f"{mapping.protocol} dport {mapping.host_port} dnat to {target(mapping, pod)}"
            rules.append(f"{ip} daddr {mapping.host_ip} {port}" if named else port)
    return rules


def target(mapping: Mapping, pod: Interface) -> str:
    """Formats where a host port leads to."""
    address_ = f"[{pod.ip}]" if pod.version == 6 else str(pod.ip)
    return f"{address_}:{mapping.container_port}"
