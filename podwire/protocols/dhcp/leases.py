"""A lease, read from the server's message; and when to renew it (RFC 2131, section 4.4.5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv4Interface

from podwire.protocols.dhcp import options
from podwire.protocols.dhcp.messages import Message
from podwire.protocols.dhcp.options import INFINITE, Malformed, Reader, Route

_ANYWHERE = options.classless_routes(bytes(5))[0].destination
_SMALLEST_MTU = 68
_SHORTEST_WAIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An address for some time, and what came with it."""

    address: IPv4Interface
    server: IPv4Address
    seconds: int
    """INFINITE is for ever."""
    renew_after: float
    """T1: from then on its server is asked for more time."""
    rebind_after: float
    """T2: from then on every server is."""
    routes: tuple[Route, ...] = ()
    router: IPv4Address | None = None
    """The first router that the server names, also where classless routes replace it."""
    mtu: int | None = None
    dns: tuple[IPv4Address, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    via: bytes = b""
    """Where its server's answers come from on the link: its own MAC, or that of a relay."""
    unreadable: tuple[int, ...] = ()
    """Malformed options of the server; they are ignored."""

    @property
    def is_infinite(self) -> bool:
        return self.seconds == INFINITE


def read(message: Message, via: bytes = b"") -> Lease:
    """Of an OFFER or an ACK. Malformed when there is no address, no server or no time in it."""
    reader = Reader(message.options)
    server = reader(options.SERVER, options.ip, None)
    seconds = reader(options.SECONDS, options.u32, 0)
    if server is None or not int(server) or not seconds:
        raise Malformed("neither a server nor a time" if not server else "a lease of no time")
    address = message.yiaddr
    if not int(address) or address.is_multicast or address.is_loopback or int(address) == INFINITE:
        raise Malformed(f"{address} is not a valid address for an interface")
    length = reader(options.MASK, options.prefix, options.class_prefix(address))
    renew_after, rebind_after = _times(
        seconds, reader(options.T1, options.u32, None), reader(options.T2, options.u32, None)
    )
    mtu = reader(options.MTU, options.u16, None)
    return Lease(
        address=IPv4Interface((address, length)),
        server=server,
        seconds=seconds,
        renew_after=renew_after,
        rebind_after=rebind_after,
        routes=_routes(reader),
        router=next((router for router in reader(options.ROUTER, options.ips, ()) if int(router)), None),
        mtu=mtu if mtu is not None and mtu >= _SMALLEST_MTU else None,
        dns=reader(options.DNS, options.ips, ()),
        domain=reader(options.DOMAIN, options.text, ""),
        search=reader(options.SEARCH, options.search, ()),
        via=via,
        unreadable=tuple(reader.unreadable),
    )


def _routes(reader: Reader) -> tuple[Route, ...]:
    """Classless routes replace all others (RFC 3442)."""
    classless = reader(options.CLASSLESS_ROUTES, options.classless_routes, ())
    if classless:
        return classless
    routers = reader(options.ROUTER, options.ips, ())
    return (
        *reader(options.STATIC_ROUTES, options.static_routes, ()),
        *(Route(_ANYWHERE, router) for router in routers[:1] if int(router)),
    )


def _times(seconds: int, t1: int | None, t2: int | None) -> tuple[float, float]:
    """The server's, if they make sense together."""
    renew = seconds * 0.5 if t1 is None else float(t1)
    rebind = seconds * 0.875 if t2 is None else float(t2)
    return (renew, rebind) if 0 < renew < rebind < seconds else (seconds * 0.5, seconds * 0.875)


class Phase(Enum):
    BOUND = "bound"
    RENEWING = "renewing"
    REBINDING = "rebinding"
    EXPIRED = "expired"


def phase(lease: Lease, age: float) -> tuple[Phase, float]:
    """Where a lease is in its life, `age` seconds after it was granted, and for how many seconds more."""
    if lease.is_infinite:
        return Phase.BOUND, float("inf")
    ends: Sequence[tuple[Phase, float]] = (
        (Phase.BOUND, lease.renew_after),
        (Phase.RENEWING, lease.rebind_after),
        (Phase.REBINDING, float(lease.seconds)),
    )
    return next(((phase, end - age) for phase, end in ends if age < end), (Phase.EXPIRED, float("inf")))


def retry_in(lease: Lease, age: float) -> float:
    """How long a client that got no answer waits: half of what is left of the phase, but a minute at least."""
    _, left = phase(lease, age)
    return min(max(left / 2, _SHORTEST_WAIT), left)
