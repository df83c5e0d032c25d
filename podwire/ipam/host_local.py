"""host-local: what its configuration asks for, done with leases. Called by the plugin of that name and, in the same
process, by plugins that delegate to it."""

import os
from collections.abc import Callable
from typing import NamedTuple

from podwire.ipam.entries import Owner
from podwire.ipam.leases import Leases
from podwire.ipam.ranges import RangeSet, found, parse_sets
from podwire.protocols.cni import args
from podwire.protocols.cni.config import PluginConfig, Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Result, Route, decode_route
from podwire.protocols.cni.values import Address, Object, address, taken, taken_list
from podwire.protocols.cni.verbs import Invocation
from podwire.protocols.cni.versions import at_least

TYPE = "host-local"
DATA = "/var/lib/cni/networks"
ARGS = ("IP", "MAC", "GATEWAY")
"""Of CNI_ARGS; the last two are for other plugins of the same call."""


Tell = Callable[[str], None]


def _nobody(_line: str) -> None:
    pass


class Wish(NamedTuple):
    """What is asked for, decided from configuration and arguments."""

    sets: tuple[RangeSet, ...]
    wanted: tuple[Address, ...]
    routes: tuple[Route, ...]
    resolv_conf: str


def wish(config: PluginConfig, invocation: Invocation) -> Wish:
    """CniError when that makes no sense, so it can be asked before anything is done."""
    ipam = _ipam(config)
    leases(config)
    capability = taken_list(config.runtime, "ipranges", list, "runtimeConfig.")
    sets = parse_sets(ipam, list(capability))
    families = [each[0].subnet.version for each in sets]
    if not at_least(config.version, "0.3.0") and len(set(families)) < len(families):
        raise CniError(Code.BAD_CONFIG, f"ipam: version {config.version} has room for one address of each family")
    routes = taken_list(ipam, "routes", dict, "ipam.")
    return Wish(
        sets=sets,
        wanted=_wanted(config, invocation),
        routes=tuple(decode_route(each, f"ipam.routes[{at}].") for at, each in enumerate(routes)),
        resolv_conf=taken(ipam, "resolvConf", str, "", "ipam."),
    )


def _ipam(config: PluginConfig) -> Object:
    return taken(config.raw, "ipam", dict, {})


def leases(config: PluginConfig, tell: Tell = _nobody) -> Leases:
    """Those of a network. `mirrorHostLocal` says whether the reference plugin is to understand them."""
    data = taken(_ipam(config), "dataDir", str, "", "ipam.") or DATA
    mirror = taken(_ipam(config), "mirrorHostLocal", bool, True, "ipam.")
    return Leases(os.path.join(data, config.name), mirror=mirror, tell=tell)


def _wanted(config: PluginConfig, invocation: Invocation) -> tuple[Address, ...]:
    """Addresses that are asked for: by capability, else by `args.cni`, else by CNI_ARGS."""
    given = taken_list(config.runtime, "ips", str, "runtimeConfig.") or taken_list(config.args, "ips", str, "args.cni.")
    if not given:
        told = args.parsed(invocation.args, ARGS).get("IP", "")
        given = told.split(",") if told else []
    return tuple(address(each.partition("/")[0], "ips") for each in given)


def add(config: PluginConfig, invocation: Invocation, tell: Tell = _nobody) -> Result:
    """The addresses of this attachment: new ones, or those that it has."""
    asked = wish(config, invocation)
    dns = _resolv_conf(asked.resolv_conf) if asked.resolv_conf else DNS()
    owner = Owner(invocation.container_id, invocation.ifname)
    given = leases(config, tell).take(owner, asked.sets, asked.wanted, invocation.netns)
    ips = []
    for ip, set_ in zip(given, asked.sets, strict=True):
        part = found(set_, ip)
        if part is not None:
            ips.append(IP(part.interface(ip), part.gateway))
    return Result(ips=tuple(ips), routes=asked.routes, dns=dns)


def delete(config: PluginConfig, invocation: Invocation, tell: Tell = _nobody) -> None:
    """Only the ids and the directory count: ranges may be anything by now."""
    leases(config, tell).release(Owner(invocation.container_id, invocation.ifname))


def check(config: PluginConfig, invocation: Invocation) -> None:
    """Every address that the attachment was given and that is of our ranges is still leased to it."""
    asked = wish(config, invocation)
    has = leases(config).of(Owner(invocation.container_id, invocation.ifname))
    previous = config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, "prevResult: missing")
    told = [each.address.ip for each in previous.ips]
    ours = [each for each in told if any(found(set_, each) is not None for set_ in asked.sets)]
    lost = [each for each in ours if each not in has]
    who = f"{invocation.container_id} {invocation.ifname}"
    if not has:
        raise CniError(Code.NOT_AS_ADDED, f"ipam: nothing is leased to {who}")
    if lost:
        raise CniError(Code.NOT_AS_ADDED, f"ipam: {', '.join(map(str, lost))} is not leased to {who}")


def gc(config: PluginConfig, valid: Valid, tell: Tell = _nobody, others: Callable[[], Valid] = frozenset) -> None:
    """Free every address of this network that belongs to nobody who is valid, nor to one of the others."""
    leases(config, tell).keep_only(valid, others)


def status(config: PluginConfig, invocation: Invocation) -> None:
    """Whether every set has an address for one more."""
    leases(config).check_room(wish(config, invocation).sets)


def _resolv_conf(path: str) -> DNS:
    """What a resolv.conf says."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [each.partition("#")[0].partition(";")[0].split() for each in file.read(1 << 16).splitlines()]
    except OSError as error:
        raise CniError(Code.IO_FAILURE, f"ipam.resolvConf: {path}: {error.strerror}") from error
    by_word: dict[str, list[str]] = {"nameserver": [], "domain": [], "search": [], "options": []}
    for word, *rest in filter(None, lines):
        by_word.setdefault(word, []).extend(rest)
    return DNS(
        nameservers=tuple(by_word["nameserver"]),
        domain=by_word["domain"][-1] if by_word["domain"] else "",
        search=tuple(by_word["search"]),
        options=tuple(by_word["options"]),
    )
