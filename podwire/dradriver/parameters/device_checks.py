"""Whether what was said can be had on this very device, and is complete. Pure."""

from podwire.dradriver.claims.allocations import Device, Refused
from podwire.dradriver.parameters.field_checks import BELONGS, At, Values, belongs
from podwire.dradriver.parameters.reader import SEPARATOR
from podwire.dradriver.parameters.settings import KINDS, WHOLE
from podwire.dradriver.parameters.texts import RESERVED_NAMES

_VXLAN_OVERHEAD = {4: 50, 6: 70}
_ON_ETHERNET = ("macvlan", "ipvlan", "vlan")
_ALONE = ("interface.disableEbpf", "rdma")
"""Fields that only a whole device supports."""


def fit(said: Values, device: Device, at: At) -> None:
    """Raises Refused."""
    if not device.link:
        # A device for RDMA alone.
        for path in said:
            if path != "rdma":
                raise Refused(at(path.replace(SEPARATOR, ".")), f"{device.name} has no network interface, only RDMA")
        return
    for check in (_name, _kind, _complete, _bridge, _ethernet, _mtu, _whole):
        check(said, device, at)


def _name(said: Values, device: Device, at: At) -> None:
    if "interface.name" not in said and device.link in RESERVED_NAMES:
        reason = f"is required: {device.name} is called {device.link} on the host, which in a pod is taken"
        raise Refused(at("interface.name"), reason)


def _kind(said: Values, device: Device, at: At) -> None:
    kind = said.get("interface.kind", WHOLE)
    if device.shared and kind == WHOLE:
        kinds = ", ".join(kind for kind in KINDS if kind)
        reason = f"is required: {device.name} is shared, and an interface is made on it: {kinds}"
        raise Refused(at("interface.kind"), reason)
    if not device.shared and kind != WHOLE:
        reason = f"{device.name} is not shared and moves as it is; leave the kind out, or claim a shared device"
        raise Refused(at("interface.kind"), reason)
    if kind == WHOLE:
        for path, kinds_ in BELONGS.items():
            if path in said:
                raise Refused(at(path), belongs(kinds_, kind))


def _complete(said: Values, device: Device, at: At) -> None:  # noqa: ARG001 - one shape for all checks
    for kind, path in (("vxlan", "interface.vni"), ("vlan", "interface.vlan")):
        if said.get("interface.kind") == kind and path not in said:
            raise Refused(at(path), f"is required for a {kind}")
    if "interface.vrf.table" in said and "interface.vrf.name" not in said:
        raise Refused(at("interface.vrf.name"), "is required for a VRF")


def _bridge(said: Values, device: Device, at: At) -> None:
    if said.get("interface.kind") != "veth":
        return
    if device.kind != "bridge":
        raise Refused(at("interface.kind"), f"a veth joins a bridge, and {device.name} is not a bridge")
    if said.get("interface.bridge", device.link) != device.link:
        reason = f"the claim was given {device.link}; other bridges are for other claims"
        raise Refused(at("interface.bridge"), reason)


def _ethernet(said: Values, device: Device, at: At) -> None:
    if device.kind != "ipoib":
        return
    if said.get("interface.kind") in _ON_ETHERNET:
        raise Refused(at("interface.kind"), f"{device.name} is InfiniBand, and this is made on Ethernet only")
    if "interface.mac" in said:
        raise Refused(at("interface.mac"), f"{device.name} is InfiniBand, whose addresses are its hardware's")


def _mtu(said: Values, device: Device, at: At) -> None:
    mtu = said.get("interface.mtu")
    if mtu is None:
        return
    if device.parent_mtu is not None and mtu > device.parent_mtu:
        reason = f"{mtu} is more than the {device.parent_mtu} of the physical function that {device.name} is of"
        raise Refused(at("interface.mtu"), reason)
    if not device.shared:
        return
    most = device.mtu
    if said.get("interface.kind") == "vxlan":
        remote = said.get("interface.remote")
        most -= _VXLAN_OVERHEAD[remote.version if remote else 4]
    if mtu > most:
        raise Refused(at("interface.mtu"), f"{mtu} is more than {most}, the maximum of {device.name}")


def _whole(said: Values, device: Device, at: At) -> None:
    if device.shared:
        flags = [field for field in said if field.startswith(f"ethtool.privateFlags{SEPARATOR}")]
        for path in (*(field for field in _ALONE if said.get(field)), *flags):
            reason = f"belongs to a whole device, and an interface on {device.name} is new"
            raise Refused(at(path.replace(SEPARATOR, ".")), reason)
    elif said.get("rdma") and not device.rdma:
        raise Refused(at("rdma"), f"{device.name} has no RDMA")
