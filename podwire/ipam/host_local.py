"""host-local: configuration and results. Called by the plugin of that name and, in the same process, by plugins that
delegate to it."""

import os
from collections.abc import Callable
from typing import NamedTuple

from podwire.ipam.entries import Owner
from podwire.ipam.leases import CheckLate, Leases
from podwire.ipam.ranges import RangeSet, find_range, parse_sets
from podwire.protocols.cni import args
from podwire.protocols.cni.config import PluginConfig, Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Result, Route, decode_route
from podwire.protocols.cni.values import Address, Object, address, looked_up, taken, taken_list
from podwire.protocols.cni.verbs import Invocation
from podwire.protocols.cni.versions import at_least

TYPE = "host-local"
DATA = "/var/lib/cni/networks"
ARGS = ("IP", "MAC", "GATEWAY")
"""Keys of CNI_ARGS; the last two are read by other plugins of the same call."""

Warn = Callable[[str], None]


def _ignore(_line: str) -> None:
    pass


class Request(NamedTuple):
    """The request of configuration and arguments."""

    sets: tuple[RangeSet, ...]
    addresses: tuple[Address, ...]
    """Addresses that are requested by name."""
    routes: tuple[Route, ...]
    resolv_conf: str


def parse_request(config: PluginConfig, invocation: Invocation) -> Request:
    """Raises CniError for an invalid configuration; changes nothing."""
    ipam = _ipam(config)
    if looked_up(config.raw, "ipam") is None:
        raise CniError(Code.BAD_CONFIG, "IPAM config missing 'ipam' key")
    leases(config)
    capability = taken_list(config.runtime, "ipranges", list, "runtimeConfig.")
    sets = parse_sets(ipam, list(capability))
    families = [ranges[0].subnet.version for ranges in sets]
    if not at_least(config.version, "0.3.0") and len(set(families)) < len(families):
        message = f"CNI version {config.version} does not support more than 1 address per family"
        raise CniError(Code.BAD_CONFIG, message, "ipam")
    routes = taken_list(ipam, "routes", dict, "ipam.")
    return Request(
        sets=sets,
        addresses=_requested_addresses(config, invocation),
        routes=tuple(decode_route(raw, f"ipam.routes[{index}].") for index, raw in enumerate(routes)),
        resolv_conf=taken(ipam, "resolvConf", str, "", "ipam."),
    )


def _ipam(config: PluginConfig) -> Object:
    return taken(config.raw, "ipam", dict, {})


def leases(config: PluginConfig, warn: Warn = _ignore) -> Leases:
    """Returns the leases of a network. With `mirrorHostLocal` they can be read by the reference plugin."""
    data = taken(_ipam(config), "dataDir", str, "", "ipam.") or DATA
    mirror = taken(_ipam(config), "mirrorHostLocal", bool, True, "ipam.")
    return Leases(os.path.join(data, config.name), mirror=mirror, warn=warn)


def _requested_addresses(config: PluginConfig, invocation: Invocation) -> tuple[Address, ...]:
    """Returns the addresses that are requested by capability, else by `args.cni`, else by CNI_ARGS."""
    texts = taken_list(config.runtime, "ips", str, "runtimeConfig.") or taken_list(config.args, "ips", str, "args.cni.")
    if not texts:
        return _argued_addresses(args.parsed(invocation.args, ARGS).get("IP", ""))
    return tuple(address(text.partition("/")[0], "ips") for text in texts)


def _argued_addresses(argument: str) -> tuple[Address, ...]:
    texts = [text.partition("/")[0] for text in argument.split(",")] if argument else []
    try:
        return tuple(address(text, "CNI_ARGS: IP") for text in texts)
    except CniError as error:
        message = f'ARGS: error parsing value of pair "IP={argument}": invalid IP address {argument}'
        raise CniError(error.code, message, error.details) from error


def add(
    config: PluginConfig, invocation: Invocation, warn: Warn = _ignore, check_late: CheckLate = lambda _is_deleted: None
) -> Result:
    """Leases addresses to the attachment, or returns those that it has. `check_late` is called under the lock."""
    request = parse_request(config, invocation)
    dns = _parse_resolv_conf(request.resolv_conf) if request.resolv_conf else DNS()
    owner = Owner(invocation.container_id, invocation.ifname)
    leased = leases(config, warn).take(owner, request.sets, request.addresses, invocation.netns, check_late)
    ips = []
    for address_, ranges in zip(leased, request.sets, strict=True):
        part = find_range(ranges, address_)
        if part is not None:
            ips.append(IP(part.interface(address_), part.gateway))
    return Result(ips=tuple(ips), routes=request.routes, dns=dns)


def delete(config: PluginConfig, invocation: Invocation, warn: Warn = _ignore, *, note: bool = False) -> None:
    """Releases by the ids and the directory alone: the ranges of the configuration may have changed since ADD."""
    owner = Owner(invocation.container_id, invocation.ifname)
    leases(config, warn).release(owner, note=note)


def check(config: PluginConfig, invocation: Invocation) -> None:
    """Expects every address of prevResult that is of our ranges to be leased to the attachment."""
    request = parse_request(config, invocation)
    leased = leases(config).of(Owner(invocation.container_id, invocation.ifname))
    previous = config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, "Required prevResult missing", "prevResult: missing")
    addresses = [ip.address.ip for ip in previous.ips]
    ours = [ip for ip in addresses if any(find_range(ranges, ip) is not None for ranges in request.sets)]
    lost = [ip for ip in ours if ip not in leased]
    who = f"{invocation.container_id} {invocation.ifname}"
    message = f"host-local: Failed to find address added by container {invocation.container_id}"
    if not leased:
        raise CniError(Code.NOT_AS_ADDED, message, f"ipam: nothing is leased to {who}")
    if lost:
        raise CniError(Code.NOT_AS_ADDED, message, f"ipam: {', '.join(map(str, lost))} is not leased to {who}")


def gc(config: PluginConfig, valid: Valid, warn: Warn = _ignore, also_valid: Callable[[], Valid] = frozenset) -> None:
    """Releases every address of this network whose owner is neither valid nor in `also_valid`."""
    leases(config, warn).release_others(valid, also_valid)


def status(config: PluginConfig, invocation: Invocation) -> None:
    """Raises CniError if a range set has no address for one more attachment."""
    leases(config).check_capacity(parse_request(config, invocation).sets)


def _parse_resolv_conf(path: str) -> DNS:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line.partition("#")[0].partition(";")[0].split() for line in file.read(1 << 16).splitlines()]
    except OSError as error:
        reason = str(error.strerror)
        message = f"open {path}: {reason[:1].lower()}{reason[1:]}"
        raise CniError(Code.IO_FAILURE, message, "ipam.resolvConf") from error
    by_word: dict[str, list[str]] = {"nameserver": [], "domain": [], "search": [], "options": []}
    for word, *rest in filter(None, lines):
        by_word.setdefault(word, []).extend(rest)
    return DNS(
        nameservers=tuple(by_word["nameserver"]),
        domain=by_word["domain"][-1] if by_word["domain"] else "",
        search=tuple(by_word["search"]),
        options=tuple(by_word["options"]),
    )
