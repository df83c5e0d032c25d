"""Every field of the parameters, as one table: readers, locks, and the admission policy are made from it."""

from podwire.dradriver.names import DRIVER
from podwire.dradriver.parameters import texts
from podwire.dradriver.parameters.entries import NEIGHBOURS, OWN_TABLE, ROUTES, RULES
from podwire.dradriver.parameters.forms import Choice, Flag, Form, Group, Number, Switches, Text, Texts
from podwire.dradriver.parameters.settings import CHARACTER_DEVICES, KINDS, WHOLE

API_VERSION = f"{DRIVER}/v1alpha1"
KIND = "InterfaceParameters"

MODES = {"macvlan": ("bridge", "private", "vepa"), "ipvlan": ("l2", "l3", "l3s")}
"""Of each kind that has some; the first is what one gets that names none. A macvlan cannot be passthru: it would take
over a device that others share."""
LOWEST_MTU, HIGHEST_MTU = 68, 65535
MOST_ADDRESSES = 16
"""As many as the status of a claim holds."""
MOST_LOCKS = 64

_SEGMENTS = Number(low=512, high=524280)
"""Below, headers do not fit; above, the kernel has no such packets."""

FEATURES = {
    "rx": ("rx-checksum",),
    "sg": ("tx-scatter-gather",),
    "tso": ("tx-tcp-segmentation", "tx-tcp6-segmentation"),
    "gso": ("tx-generic-segmentation",),
    "gro": ("rx-gro",),
    "lro": ("rx-lro",),
    "rxvlan": ("rx-vlan-hw-parse",),
    "txvlan": ("tx-vlan-hw-insert",),
    "ntuple": ("rx-ntuple-filter",),
    "rxhash": ("rx-hashing",),
}
"""Short names that ethtool knows, and the kernel's own for them. Variants of tso that depend on these two follow them,
and not every device has them."""


AMBIGUOUS_FEATURE = "tx"
AMBIGUOUS = "is another feature on every device: say which, such as tx-checksum-ip-generic"


def feature(name: str) -> str:
    if name == AMBIGUOUS_FEATURE:
        raise ValueError(AMBIGUOUS)
    return texts.feature(name)


NO_CHARACTER_DEVICE = f"must be one of {', '.join(CHARACTER_DEVICES)}"


def character_device(name: str) -> str:
    if name not in CHARACTER_DEVICES:
        raise ValueError(NO_CHARACTER_DEVICE)
    return name


_INTERFACE: dict[str, Form] = {
    "name": Text(parse=texts.interface_name),
    "kind": Choice(of=tuple(kind for kind in KINDS if kind != WHOLE)),
    "mode": Choice(of=tuple(mode for modes in MODES.values() for mode in modes)),
    "vni": Number(low=1, high=2**24 - 1),
    "remote": Text(parse=texts.peer),
    "port": Number(low=1, high=65535),
    "vlan": Number(low=1, high=4094),
    "bridge": Text(parse=texts.host_name),
    "mtu": Number(low=LOWEST_MTU, high=HIGHEST_MTU),
    "mac": Text(parse=texts.mac),
    "addresses": Texts(parse=texts.interface, most=MOST_ADDRESSES, key=lambda each: each.ip),
    "addressPool": Text(parse=texts.pool),
    "dhcp": Flag(),
    "gsoMaxSize": _SEGMENTS,
    "groMaxSize": _SEGMENTS,
    "gsoIPv4MaxSize": _SEGMENTS,
    "groIPv4MaxSize": _SEGMENTS,
    "forwarding": Flag(),
    "arpIgnore": Choice(of=(0, 1, 2, 3, 8)),
    "arpAnnounce": Choice(of=(0, 1, 2)),
    "vrf": Group(fields={"name": Text(parse=texts.interface_name), "table": OWN_TABLE}),
    "characterDevices": Texts(parse=character_device, most=len(CHARACTER_DEVICES)),
    "disableEbpf": Flag(),
}

FIELDS: dict[str, Form] = {
    "interface": Group(fields=_INTERFACE),
    "routes": ROUTES,
    "rules": RULES,
    "neighbours": NEIGHBOURS,
    "ethtool": Group(
        fields={
            "features": Switches(parse=feature, most=64, expand=lambda name: FEATURES.get(name, (name,))),
            "privateFlags": Switches(parse=texts.private_flag, most=32),
        }
    ),
    "rdma": Flag(),
}
"""Without what every object has (apiVersion, kind), and what only a class has (locks)."""


def _paths(fields: dict[str, Form], above: str = "") -> list[str]:
    found = []
    for name, form in fields.items():
        found.append(above + name)
        if isinstance(form, Group):
            found += _paths(dict(form.fields), f"{above}{name}.")
    return found


PATHS = tuple(_paths(FIELDS))
"""The fields that can be locked. A lock on a group holds all of it."""


NO_FIELD = "is not a field; write a path, such as interface.mtu, routes or ethtool.features"


def lock(text: str) -> str:
    if text not in PATHS:
        raise ValueError(NO_FIELD)
    return text


LOCKS = Texts(parse=lock, most=MOST_LOCKS)
