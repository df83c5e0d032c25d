"""Configuration of the CNI plugin dhcp: the options of its client, and the socket of its daemon. Pure.

Short-lived programs import this: no asyncio, no msgspec.
"""

import os
from typing import NamedTuple

from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Object, taken, taken_list
from podwire.protocols.cni.verbs import Invocation
from podwire.protocols.dhcp import options

SOCKET = "/run/cni/dhcp.sock"
"""Where the reference plugin's daemon listens, too: one node has one of them."""
_NAMES = {
    "dhcp-client-identifier": options.CLIENT_ID,
    "subnet-mask": options.MASK,
    "routers": options.ROUTER,
    "host-name": options.HOSTNAME,
    "user-class": 77,
    "vendor-class-identifier": 60,
}
_OF_THE_PROTOCOL = frozenset(
    (
        options.PAD,
        options.END,
        options.REQUESTED,
        options.OVERLOAD,
        options.TYPE,
        options.SERVER,
        options.WISHES,
        options.LONGEST,
    )
)
"""Options that the client itself sets."""
_LONGEST_VALUE = 255
_LONGEST_CLIENT_ID = 254
_PARENTS = {"bridge": "bridge", "macvlan": "master", "ipvlan": "master"}
"""Keys of plugins that name a link of the host on the same network as the pod's."""


class Request(NamedTuple):
    client_id: bytes
    wishes: bytes
    provided: tuple[tuple[int, bytes], ...]
    priority: int
    """Metric of the leased routes; 0 is the kernel's default."""
    parent: str
    """A link of the host on the same network; empty if none is known."""


def socket_path(config: PluginConfig) -> str:
    return taken(_ipam(config), "daemonSocketPath", str, "", "ipam.") or SOCKET


def leases_directory(socket: str) -> str:
    """Returns the daemon's directory of leases. It is beside the socket, so that leases end with their pods at a boot,
    and the plugin knows without the daemon whether there is something to release."""
    return f"{os.path.splitext(socket)[0]}.leases"


def parse_request(config: PluginConfig, invocation: Invocation) -> Request:
    """Raises CniError, with the words of the reference plugin where it has some."""
    ipam = _ipam(config)
    provided = _provided(ipam, invocation.args)
    default_id = f"{invocation.container_id}/{config.name}/{invocation.ifname}".encode()[:_LONGEST_CLIENT_ID]
    priority = taken(ipam, "priority", int, 0, "ipam.")
    if not 0 <= priority < 1 << 32:
        raise CniError(Code.BAD_CONFIG, f"ipam.priority: {priority} is not a metric of a route")
    kind = taken(config.raw, "type", str, "")
    in_container = taken(config.raw, "linkInContainer", bool, False)
    parent = taken(config.raw, _PARENTS[kind], str, "") if kind in _PARENTS and not in_container else ""
    return Request(
        client_id=provided.pop(options.CLIENT_ID, b"\0" + default_id),
        wishes=_wishes(ipam),
        provided=tuple(provided.items()),
        priority=priority,
        parent=parent,
    )


def _ipam(config: PluginConfig) -> Object:
    return taken(config.raw, "ipam", dict, {})


def _provided(ipam: Object, arguments: str) -> dict[int, bytes]:
    """Values of the configuration, or of CNI_ARGS, which win. An argument that is not set is left out."""
    pairs = dict(pair.split("=", 1) for pair in arguments.split(";") if "=" in pair)
    provided: dict[int, bytes] = {}
    for index, entry in enumerate(taken_list(ipam, "provide", dict, "ipam.")):
        where = f"ipam.provide[{index}]."
        name = taken(entry, "option", str, "", where)
        code = _code(name, where)
        if code in _OF_THE_PROTOCOL:
            raise CniError(Code.BAD_CONFIG, f"{where}option: {name} is set by the DHCP client itself")
        argument = taken(entry, "fromArg", str, "", where)
        value = pairs.get(argument) or taken(entry, "value", str, "", where)
        encoded = value.encode("utf-8", "surrogateescape")
        if len(encoded) > _LONGEST_VALUE:
            raise CniError(Code.BAD_CONFIG, f'value too long for option "{name}": "{value}"', where.rstrip("."))
        if encoded:
            provided[code] = encoded
    return provided


def _wishes(ipam: Object) -> bytes:
    entries = taken_list(ipam, "request", dict, "ipam.")
    codes: list[int] = []
    with_default = True
    for index, entry in enumerate(entries):
        where = f"ipam.request[{index}]."
        with_default = with_default and not taken(entry, "skipDefault", bool, False, where)
        if name := taken(entry, "option", str, "", where):
            code = _code(name, where)
            if code in (options.PAD, options.END):
                raise CniError(Code.BAD_CONFIG, f"{where}option: {name} is not an option that a server can send")
            codes.append(code)
    return bytes(dict.fromkeys((*codes, *(options.DEFAULT_WISHES if with_default else ()))))


def _code(name: str, where: str) -> int:
    if name in _NAMES:
        return _NAMES[name]
    if name.isascii() and name.isdecimal() and int(name[:4]) <= options.END and len(name) <= 3:
        return int(name)
    message = f'Can not parse option "{name}": neither a number from 0 to 255 nor one of {", ".join(_NAMES)}'
    raise CniError(Code.BAD_CONFIG, message, f"{where}option")
