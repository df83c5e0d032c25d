"""static: the IPAM plugin that returns the addresses of the configuration or of the runtime. It has no state."""

from typing import NamedTuple

from podwire.cniplugins.skeleton import Call, Plugin, require_previous
from podwire.protocols.cni import args
from podwire.protocols.cni.config import Valid
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.results import DNS, IP, Result, Route, decode_dns, decode_route
from podwire.protocols.cni.values import Interface, Object, address, interface, taken, taken_list
from podwire.protocols.cni.versions import at_least

ARGS = ("IP", "GATEWAY", "MAC")
"""Keys of CNI_ARGS; the last is read by other plugins of the same call."""


class Request(NamedTuple):
    ips: tuple[IP, ...]
    routes: tuple[Route, ...]
    dns: DNS


def parse_request(call: Call) -> Request:
    """Returns what configuration and arguments request. Raises CniError."""
    ipam = taken(call.config.raw, "ipam", dict, {})
    if not ipam:
        raise CniError(Code.BAD_CONFIG, "IPAM config missing 'ipam' key")
    ips = _ips(call, ipam)
    families = [ip.address.version for ip in ips]
    if not at_least(call.config.version, "0.3.0") and len(set(families)) < len(families):
        message = f"CNI version {call.config.version} does not support more than 1 address per family"
        raise CniError(Code.BAD_CONFIG, message, "ipam")
    routes = taken_list(ipam, "routes", dict, "ipam.")
    return Request(
        ips=ips,
        routes=tuple(decode_route(raw, f"ipam.routes[{index}].") for index, raw in enumerate(routes)),
        dns=decode_dns(taken(ipam, "dns", dict, {}, "ipam."), "ipam.dns."),
    )


def _ips(call: Call, ipam: Object) -> tuple[IP, ...]:
    """The addresses of a capability, else of `args.cni`, else of the configuration and CNI_ARGS together."""
    for source, where in ((call.config.runtime, "runtimeConfig."), (call.config.args, "args.cni.")):
        named = taken_list(source, "ips", str, where)
        if named:
            return tuple(
                IP(_with_prefix(text, f"{where}ips[{index}]", "an entry in the 'ips' field is NOT"))
                for index, text in enumerate(named)
            )
    arguments = args.parsed(call.invocation.args, ARGS)
    configured = taken_list(ipam, "addresses", dict, "ipam.")
    ips = [_ip(raw, f"ipam.addresses[{index}].") for index, raw in enumerate(configured)]
    expected = "the 'ip' field is expected to be"
    ips += [IP(_with_prefix(text, "CNI_ARGS: IP", expected)) for text in _split(arguments.get("IP", ""))]
    for text in _split(arguments.get("GATEWAY", "")):
        try:
            gateway = address(text, "CNI_ARGS: GATEWAY")
        except CniError as error:
            raise CniError(error.code, f"invalid gateway address: {text}", error.details) from error
        ips = [ip._replace(gateway=gateway) if gateway in ip.address.network else ip for ip in ips]
    return tuple(ips)


def _ip(value: Object, where: str) -> IP:
    gateway = address(value["gateway"], f"{where}gateway") if value.get("gateway") else None
    expected = "the 'address' field is expected to be"
    return IP(_with_prefix(value.get("address"), f"{where}address", expected), gateway)


def _with_prefix(text: object, where: str, expected: str) -> Interface:
    """Returns an address with a prefix length. The error has the words of the reference plugin."""
    try:
        return interface(text, where)
    except CniError as error:
        raise CniError(error.code, f"{expected} in CIDR notation, got: '{text}'", where) from error


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


class Static(Plugin):
    name = "static"

    def add(self, call: Call) -> Result:
        request = parse_request(call)
        return Result(ips=request.ips, routes=request.routes, dns=request.dns)

    def check(self, call: Call) -> None:
        """Expects every address in prevResult, with its gateway if one is requested."""
        gateways = {ip.address: ip.gateway for ip in require_previous(call).ips}
        for ip in parse_request(call).ips:
            if ip.address not in gateways:
                raise CniError(Code.NOT_AS_ADDED, f"ipam: {ip.address} is not in prevResult")
            if ip.gateway not in (None, gateways[ip.address]):
                raise CniError(Code.NOT_AS_ADDED, f"ipam: {ip.address} does not have the gateway {ip.gateway}")

    def delete(self, call: Call) -> None:
        """Nothing was leased."""

    def gc(self, call: Call, valid: Valid) -> None:
        """Nothing was leased."""

    def status(self, call: Call) -> None:
        """Raises CniError for an invalid configuration; the runtime may give addresses at ADD."""
        parse_request(call)

    def check_request(self, call: Call) -> None:
        parse_request(call)


PLUGIN = Static()
