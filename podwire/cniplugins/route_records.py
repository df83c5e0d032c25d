"""Routes in the records of sbr and vrf. Pure."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from podwire.linux.values import Route
from podwire.protocols.cni.values import Object


def encode_routes(routes: Iterable[Route]) -> list[Object]:
    return [
        {
            key: value if isinstance(value, int) else str(value)
            for key, value in route._asdict().items()
            if value is not None and key != "others"
        }
        for route in routes
    ]


def decode_route(raw: Object) -> Route:
    fields: Object = {**raw, "destination": ip_network(raw["destination"])}
    fields |= {key: ip_address(raw[key]) for key in ("gateway", "source") if key in raw}
    return Route(**fields)
