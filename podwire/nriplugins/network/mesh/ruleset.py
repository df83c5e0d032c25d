"""The nft table of a plan, for the pod's own namespace. Pure.

    chain outbound  nat, output       what the pod opens: not TCP, not a first packet, to the pod itself, of the proxy,
                                      excluded: untouched; the rest is redirected
    chain inbound   nat, prerouting   what others open to the pod, likewise
    chain guard     filter, input     the proxy's ports take nothing that was not redirected

Only first packets (SYN) are redirected, so connections from before stay as they are. Whatever the pod says to itself
stays with itself: the proxy reaches the application, and nothing comes round. The guard ends the one loop that is left,
a proxy that gets its own port as the destination and connects there.
"""

from collections.abc import Iterable
from sys import byteorder

from podwire.linux.nft import expressions as nft
from podwire.linux.nft.tables import INPUT, OUTPUT, PREROUTING, Chain, Table
from podwire.nriplugins.network.mesh.plan import Plan, Redirection

TABLE = "podwire-mesh"
"""The owner tag: whatever is in it is ours."""
_DESTINATION_NAT, _FILTER = -100, 0
_LOOPBACK = 1
_FLAGS_AT, _FLAGS, _SYN = 13, 0x17, 0x02
_PORT_AT = 2
_RETURN = nft.verdict("return")
_IS_TCP = nft.meta("l4proto"), nft.equals(bytes((nft.TCP,)))


def table(plan: Plan) -> Table | None:
    """None when nothing is to be redirected."""
    chains = []
    if plan.outbound is not None:
        chains.append(Chain("outbound", tuple(_outbound(plan.outbound)), OUTPUT, _DESTINATION_NAT, "nat"))
    if plan.inbound is not None:
        chains.append(Chain("inbound", tuple(_inbound(plan.inbound)), PREROUTING, _DESTINATION_NAT, "nat"))
    here = [way for way in (plan.outbound, plan.inbound) if way is not None and not way.proxy.addresses]
    if here:
        ports = sorted({way.direction.port for way in here})
        chains.append(Chain("guard", tuple(map(_guarded, ports)), INPUT, _FILTER))
    return Table(TABLE, tuple(chains)) if chains else None


def _outbound(way: Redirection) -> Iterable[bytes]:
    yield from _only_first_packets()
    yield nft.rule(nft.destination_type(), nft.equals(_number(nft.LOCAL)), _RETURN)
    yield from _known_by("mark", [] if way.proxy.mark is None else [way.proxy.mark])
    yield from _known_by("skuid", [*([] if way.proxy.uid is None else [way.proxy.uid]), *way.direction.uids])
    yield from _known_by("skgid", [*([] if way.proxy.gid is None else [way.proxy.gid]), *way.direction.gids])
    yield from _excluded(way, "destination")
    if not way.proxy.addresses:
        yield nft.rule(*_IS_TCP, *nft.redirect(way.direction.port))
    for address in way.proxy.addresses:
        yield nft.rule(*nft.family(address.version), *nft.destined(address.version, address.packed, way.direction.port))


def _inbound(way: Redirection) -> Iterable[bytes]:
    yield from _only_first_packets()
    yield nft.rule(nft.meta("iif"), nft.equals(_number(_LOOPBACK)), _RETURN)
    yield nft.rule(nft.destination_type(), nft.differs(_number(nft.LOCAL)), _RETURN)
    yield from _excluded(way, "source")
    yield nft.rule(*_IS_TCP, *nft.redirect(way.direction.port))


def _only_first_packets() -> Iterable[bytes]:
    yield nft.rule(nft.meta("l4proto"), nft.differs(bytes((nft.TCP,))), _RETURN)
    flags = nft.transport(_FLAGS_AT, 1), nft.masked(bytes((_FLAGS,))), nft.differs(bytes((_SYN,)))
    yield nft.rule(*_IS_TCP, *flags, _RETURN)


def _known_by(key: str, values: Iterable[int]) -> Iterable[bytes]:
    for value in dict.fromkeys(values):
        yield nft.rule(nft.meta(key), nft.equals(_number(value)), _RETURN)


def _excluded(way: Redirection, side: str) -> Iterable[bytes]:
    for network in dict.fromkeys(way.direction.cidrs):
        yield nft.rule(*nft.within(side, network), _RETURN)
    for port in dict.fromkeys(way.direction.ports):
        yield nft.rule(*_to_port(port), _RETURN)


def _to_port(port: int) -> tuple[bytes, ...]:
    return *_IS_TCP, nft.transport(_PORT_AT, 2), nft.equals(port.to_bytes(2, "big"))


def _guarded(port: int) -> bytes:
    new = nft.conntrack("state"), nft.masked(_number(nft.NEW)), nft.differs(bytes(4))
    direct = nft.conntrack("status"), nft.masked(_number(nft.DNAT)), nft.equals(bytes(4))
    return nft.rule(*_to_port(port), *new, *direct, nft.reset())


def _number(value: int) -> bytes:
    """As the machine writes it: what is not from the wire is compared in registers."""
    return value.to_bytes(4, byteorder)
