"""The whole way from what class and claim say to what the interface is to be. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from podwire.dradriver.claims.allocations import Device, Refused
from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters import field_checks
from podwire.dradriver.parameters.device_checks import fit
from podwire.dradriver.parameters.entries import MAIN
from podwire.dradriver.parameters.merge import Merged, merged, sources
from podwire.dradriver.parameters.reader import SEPARATOR, Read, read
from podwire.dradriver.parameters.route_checks import reach
from podwire.dradriver.parameters.schema import MODES
from podwire.dradriver.parameters.settings import CHARACTER_DEVICES, WHOLE, Made, Route, Settings, Vrf
from podwire.objects import quantity
from podwire.objects.claims import AllocatedDevice, ResourceClaim

BANDWIDTH = ("bandwidth", f"{DRIVER}/bandwidth")
"""The capacity that is consumed, in bits a second."""
SLOWEST = 8
"""The kernel counts whole bytes."""
VXLAN_PORT = 4789
FIRST_VRF_TABLE, VRF_TABLES = 1000, 1000


Present = Callable[[str], bool]
"""Whether a character device is on this node."""


def effective(
    claim: ResourceClaim, result: AllocatedDevice, device: Device, present: Present = lambda _path: True
) -> Settings:
    """Returns the settings of a device in its pod. Raises Refused, before anything was changed."""
    reads = [read(source) for source in sources(claim, result)]
    for parameters in reads:
        field_checks.check_fields(parameters.said, _of(parameters))
    found = merged(reads)
    values = {path: said.value for path, said in found.items()}
    at = _blaming(found, reads)
    field_checks.check_fields(values, at)
    fit(values, device, at)
    _files(values, at, present)
    reach(values, at, shared=device.shared)
    return _settings(values, device, _bandwidth(claim, result, device))


def _of(read_: Read) -> field_checks.At:
    return lambda path: f"{read_.source.where}.{path}"


def _blaming(found: Merged, reads: list[Read]) -> field_checks.At:
    """Names the field where it was said last; one that nobody said, where it could have been."""

    def at(path: str) -> str:
        said = found.get(path)
        if said is not None:
            return f"{said.source.where}.{path}"
        return f"{reads[-1].source.where}.{path}" if reads else f"spec.devices.config[].opaque.parameters.{path}"

    return at


def _files(said: Mapping[str, Any], at: field_checks.At, present: Present) -> None:
    for kind in said.get("interface.characterDevices", ()):
        if not present(CHARACTER_DEVICES[kind]):
            reason = f"there is no {CHARACTER_DEVICES[kind]} on this node, whose kernel has to have {kind}"
            raise Refused(at("interface.characterDevices"), reason)


def _bandwidth(claim: ResourceClaim, result: AllocatedDevice, device: Device) -> int | None:
    amount = next(
        (result.consumed_capacity[capacity] for capacity in BANDWIDTH if capacity in result.consumed_capacity), None
    )
    if amount is None or not device.shared:
        return None
    place = next((i for i, device in enumerate(claim.allocated) if device == result), 0)
    at = f"status.allocation.devices.results[{place}].consumedCapacity[bandwidth]"
    try:
        bits = quantity.parse(str(amount)).value()
    except ValueError as error:
        raise Refused(at, str(error)) from None
    if bits < SLOWEST:
        raise Refused(at, f"must be at least {SLOWEST} bits a second, not {amount}")
    return bits


def _settings(said: Mapping[str, Any], device: Device, bandwidth: int | None) -> Settings:
    vrf_name = said.get("interface.vrf.name")
    vrf = Vrf(name=vrf_name, table=said.get("interface.vrf.table") or _table_of(vrf_name)) if vrf_name else None
    return Settings(
        name=said.get("interface.name", device.link),
        made=_made(said, device),
        mtu=said.get("interface.mtu"),
        mac=said.get("interface.mac"),
        addresses=said.get("interface.addresses"),
        dhcp=said.get("interface.dhcp", False),
        pool=said.get("interface.addressPool", ""),
        gso_max_size=said.get("interface.gsoMaxSize"),
        gro_max_size=said.get("interface.groMaxSize"),
        gso_ipv4_max_size=said.get("interface.gsoIPv4MaxSize"),
        gro_ipv4_max_size=said.get("interface.groIPv4MaxSize"),
        routes=tuple(_in_table(route, vrf.table if vrf else MAIN) for route in said.get("routes", ())),
        rules=said.get("rules", ()),
        neighbours=said.get("neighbours", ()),
        vrf=vrf,
        forwarding=said.get("interface.forwarding"),
        arp_ignore=said.get("interface.arpIgnore"),
        arp_announce=said.get("interface.arpAnnounce"),
        features=_switches(said, "ethtool.features"),
        private_flags=_switches(said, "ethtool.privateFlags"),
        detach_ebpf=said.get("interface.disableEbpf", False),
        rdma=said.get("rdma", not device.shared and bool(device.rdma)),
        character_devices=tuple(
            CHARACTER_DEVICES[character_device] for character_device in said.get("interface.characterDevices", ())
        ),
        bits_per_second=bandwidth,
    )


def _made(said: Mapping[str, Any], device: Device) -> Made:
    kind = said.get("interface.kind", WHOLE)
    remote = said.get("interface.remote")
    return Made(
        kind=kind,
        mode=said.get("interface.mode", MODES[kind][0] if kind in MODES else ""),
        bridge=device.link if kind == "veth" else "",
        vni=said.get("interface.vni", 0),
        remote=str(remote) if remote else "",
        port=said.get("interface.port", VXLAN_PORT) if kind == "vxlan" else 0,
        vlan=said.get("interface.vlan", 0),
    )


def _table_of(name: str) -> int:
    """The same for the same name in every pod: FNV-1a of 32 bits."""
    found = 2166136261
    for byte in name.encode():
        found = ((found ^ byte) * 16777619) % 2**32
    return FIRST_VRF_TABLE + found % VRF_TABLES


def _in_table(route: Route, table: int) -> Route:
    if route.table:
        return route
    return Route(
        destination=route.destination,
        gateway=route.gateway,
        source=route.source,
        scope=route.scope,
        table=table,
        metric=route.metric,
    )


def _switches(said: Mapping[str, Any], group: str) -> dict[str, bool]:
    start = f"{group}{SEPARATOR}"
    return {path[len(start) :]: on for path, on in said.items() if path.startswith(start)}
