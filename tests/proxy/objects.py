"""Services and slices for tests, written as short as possible."""

from ipaddress import ip_address

from podwire.proxy.topology import Place
from podwire.proxy.values import READY, SERVING, TERMINATING, Endpoint, Port, Service, Slice

HERE = Place("here", "zone-a")
NAME = ("default", "web")
HTTP = Port("", 6, 80)
DNS = Port("dns", 17, 53)
ENDING = SERVING | TERMINATING


def service(**fields) -> Service:
    return Service(**{"name": NAME, "cluster_ips": ("10.96.0.10",), "ports": (HTTP,), **fields})


def endpoint(address: str, node: str = "there", state: int = READY | SERVING, **fields) -> Endpoint:
    return Endpoint(ip_address(address).packed, state, node, **fields)


def slice_(*endpoints: Endpoint, ports=(("", 6, 8080),), version: int = 4, name=NAME) -> Slice:
    return Slice(name, version, tuple(ports), endpoints)


def target(address: str, port: int = 8080) -> bytes:
    return ip_address(address).packed + port.to_bytes(2, "big") + b"\0\0"
