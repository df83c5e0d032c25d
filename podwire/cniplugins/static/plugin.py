"""static: the addresses that the configuration, or the one who calls, names. Keeps nothing."""

from typing import NamedTuple

from podwire.cniplugins.skeleton import Call, Plugin
from podwire.protocols.cni import args
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Result, Route, decode_dns, decode_route
from podwire.protocols.cni.values import Object, address, interface, taken, taken_list
from podwire.protocols.cni.versions import at_least

TYPE = "static"
ARGS = ("IP", "GATEWAY", "MAC")
"""Of CNI_ARGS; the last is for other plugins of the same call."""


class Wish(NamedTuple):
    ips: tuple[IP, ...]
    routes: tuple[Route, ...]
    dns: DNS


def wish(call: Call) -> Wish:
    """What is asked for, decided from configuration and arguments."""
    ipam = taken(call.config.raw, "ipam", dict, {})
    if not ipam:
        raise CniError(Code.BAD_CONFIG, "ipam: missing")
    ips = _ips(call, ipam)
    families = [each.address.version for each in ips]
    if not at_least(call.config.version, "0.3.0") and len(set(families)) < len(families):
        raise CniError(Code.BAD_CONFIG, f"ipam: version {call.config.version} has room for one address of each family")
    routes = taken_list(ipam, "routes", dict, "ipam.")
    return Wish(
        ips=ips,
        routes=tuple(decode_route(each, f"ipam.routes[{at}].") for at, each in enumerate(routes)),
        dns=decode_dns(taken(ipam, "dns", dict, {}, "ipam."), "ipam.dns."),
    )


def _ips(call: Call, ipam: Object) -> tuple[IP, ...]:
    """Those of a capability, else of `args.cni`, else of the configuration and CNI_ARGS together."""
    for source, where in ((call.config.runtime, "runtimeConfig."), (call.config.args, "args.cni.")):
        named = taken_list(source, "ips", str, where)
        if named:
            return tuple(IP(interface(each, f"{where}ips[{at}]")) for at, each in enumerate(named))
    told = args.parsed(call.invocation.args, ARGS)
    more = [each.strip() for each in told.get("IP", "").split(",") if each.strip()]
    written = taken_list(ipam, "addresses", dict, "ipam.")
    ips = [_ip(each, f"ipam.addresses[{at}].") for at, each in enumerate(written)]
    ips += [IP(interface(each, "CNI_ARGS: IP")) for each in more]
    for each in filter(None, (one.strip() for one in told.get("GATEWAY", "").split(","))):
        gateway = address(each, "CNI_ARGS: GATEWAY")
        ips = [ip._replace(gateway=gateway) if gateway in ip.address.network else ip for ip in ips]
    return tuple(ips)


def _ip(value: Object, where: str) -> IP:
    gateway = address(value["gateway"], f"{where}gateway") if value.get("gateway") else None
    return IP(interface(value.get("address"), f"{where}address"), gateway)


def add(call: Call) -> Result:
    asked = wish(call)
    return Result(ips=asked.ips, routes=asked.routes, dns=asked.dns)


def check(call: Call) -> None:
    """The result has every address, with its gateway where one is named."""
    asked = wish(call)
    previous = call.config.previous()
    if previous is None:
        raise CniError(Code.BAD_CONFIG, "prevResult: missing")
    has = {each.address: each.gateway for each in previous.ips}
    for each in asked.ips:
        if each.address not in has:
            raise CniError(Code.NOT_AS_ADDED, f"ipam: {each.address} is not in the result")
        if each.gateway not in (None, has[each.address]):
            raise CniError(Code.NOT_AS_ADDED, f"ipam: {each.address} has not the gateway {each.gateway}")


def delete(_call: Call) -> None:
    """Nothing was taken."""


def gc(_call: Call, _valid: Valid) -> None:
    """Nothing was taken."""


def status(call: Call) -> None:
    """Whoever calls may name the addresses later; what the configuration says must make sense now."""
    wish(call)


PLUGIN = Plugin(TYPE, add, check, delete, gc, status, wish)
