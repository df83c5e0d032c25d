"""Configuration of the bandwidth plugin: rates and bursts. Pure."""

from ipaddress import ip_network
from typing import NamedTuple

from podwire.linux.values import Bucket
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Network, Object, looked_up, taken, taken_list

LATENCY = 0.025
"""Seconds that a packet may be queued, as in the reference plugin; packets beyond that are dropped."""
BURST = 0.1
"""Default burst, as seconds at the full rate."""
_FRAMES = 4
"""A default burst is at least as long as this many packets."""
_HEADER = 64
"""Bytes of a frame beyond the MTU: Ethernet header, VLAN tags."""
_UNSET: tuple[int, ...] = (0, (1 << 31) - 1, (1 << 32) - 1)
"""Burst values that mean "not set": runtimes send the largest number of their integer type."""
_MOST = (1 << 32) - 1
_KEYS = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
_SHAPED, _UNSHAPED = "shapedSubnets", "unshapedSubnets"
_LARGEST_PACKET = 1 << 16
"""Bytes that the kernel hands to a queue at once, as one packet that the card divides (GSO)."""


class Limit(NamedTuple):
    """Bits per second, and bits; a burst of 0 is derived from the rate."""

    rate: int
    burst: int


class Settings(NamedTuple):
    ingress: Limit | None = None
    """Traffic that the pod receives."""
    egress: Limit | None = None
    networks: tuple[Network, ...] = ()
    """Networks of the other side that are limited, or not limited; none: everything is limited."""
    limited: bool = False
    """Whether the networks are limited; otherwise all others."""


def parse_settings(config: PluginConfig) -> Settings:
    """The configuration's own limits precede those that the runtime has for this pod."""
    raw, where, unset = config.raw, "", _UNSET[:1]
    if not any(looked_up(config.raw, key) is not None for key in _KEYS):
        raw = taken(config.runtime, "bandwidth", dict, {}, "runtimeConfig.")
        where, unset = "runtimeConfig.bandwidth.", _UNSET
    networks, limited = _parse_subnets(config)
    return Settings(_limit(raw, "ingress", where, unset), _limit(raw, "egress", where, unset), networks, limited)


def _parse_subnets(config: PluginConfig) -> tuple[tuple[Network, ...], bool]:
    """The configuration's own networks precede those of the runtime, also where the limits are the runtime's."""
    raw, where = config.raw, ""
    if not any(looked_up(raw, key) for key in (_SHAPED, _UNSHAPED)):
        raw, where = taken(config.runtime, "bandwidth", dict, {}, "runtimeConfig."), "runtimeConfig.bandwidth."
    shaped, unshaped = (_networks(raw, key, where) for key in (_SHAPED, _UNSHAPED))
    if shaped and unshaped:
        message = f"{_UNSHAPED} and {_SHAPED} cannot be both specified, one of them should be discarded"
        raise CniError(Code.BAD_CONFIG, message, f"{where}{_SHAPED}")
    return shaped or unshaped, bool(shaped)


def _networks(raw: Object, key: str, where: str) -> tuple[Network, ...]:
    """Keys of `runtimeConfig` are in lower case already, whatever the runtime wrote."""
    parsed: dict[Network, None] = {}
    for index, value in enumerate(taken_list(raw, key.lower() if where else key, str, where)):
        try:
            if "/" not in value:
                raise ValueError("a prefix length is missing")
            parsed[ip_network(value, strict=False)] = None
        except ValueError as error:
            message = f'bad subnet "{value}" provided, details invalid CIDR address: {value}'
            raise CniError(Code.BAD_CONFIG, message, f"{where}{key}[{index}]: {error}") from error
    return tuple(parsed)


def _limit(raw: Object, direction: str, where: str, unset: tuple[int, ...]) -> Limit | None:
    rate, burst = _number(raw, f"{direction}Rate", where), _number(raw, f"{direction}Burst", where)
    if rate == 0:
        if burst not in unset:
            message = "if burst is set, rate must also be set"
            raise CniError(Code.BAD_CONFIG, message, f"{where}{direction}Burst needs {direction}Rate")
        return None
    if rate < 8:
        raise CniError(Code.BAD_CONFIG, f"{where}{direction}Rate: {rate} bits per second are less than a byte")
    if burst // 8 >= _MOST:
        details = f"{where}{direction}Burst: {burst} bits are more than 4 GB"
        raise CniError(Code.BAD_CONFIG, "burst cannot be more than 4GB", details)
    return Limit(rate, 0 if burst in unset else burst)


def _number(raw: Object, key: str, where: str) -> int:
    """Keys of `runtimeConfig` are in lower case already, whatever the runtime wrote."""
    value = taken(raw, key.lower() if where else key, int, 0, where)
    if value < 0:
        raise CniError(Code.BAD_CONFIG, f"{where}{key}: {value} must not be negative")
    return value


def bucket(limit: Limit, mtu: int, *, whole_packets: bool = False) -> Bucket:
    """Returns the token bucket. A burst smaller than one packet is raised: the largest packets would never pass.

    The queue of a class, unlike a token bucket, does not divide large packets (`whole_packets`).
    """
    rate, packet = limit.rate // 8, mtu + _HEADER
    burst = max(limit.burst // 8, packet) if limit.burst else max(int(rate * BURST), _FRAMES * packet)
    burst = min(burst, _MOST)
    length = max(int(rate * LATENCY) + burst, _LARGEST_PACKET + _HEADER if whole_packets else 0)
    return Bucket(rate, burst, min(length, _MOST))
