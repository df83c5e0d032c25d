"""How fast a pod may receive and send. Pure."""

from typing import NamedTuple

from podwire.linux.values import Bucket
from podwire.protocols.cni.config import PluginConfig
from podwire.protocols.cni.errors import CniError, Code
from podwire.protocols.cni.values import Object, looked_up, taken

LATENCY = 0.025
"""Seconds that a packet may wait, as the reference plugin has it; those that would wait longer are dropped."""
BURST = 0.1
"""Seconds at full rate that may pass at once after a pause, where nobody says how much."""
_FRAMES = 4
"""A burst that nobody gave holds this many packets at least."""
_HEADER = 64
"""Bytes of a packet beyond the MTU: Ethernet's header, tags."""
_NO_OPINION: tuple[int, ...] = (0, (1 << 31) - 1, (1 << 32) - 1)
"""Runtimes send the largest number that they can when a pod says nothing of a burst: at once half a gigabyte."""
_MOST = (1 << 32) - 1
_KEYS = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
_REFUSED = ("shapedSubnets", "unshapedSubnets")


class Limit(NamedTuple):
    """Bits per second, and bits; a burst of 0 follows from the rate."""

    rate: int
    burst: int


class Settings(NamedTuple):
    ingress: Limit | None = None
    """What the pod receives."""
    egress: Limit | None = None


def parse_settings(config: PluginConfig) -> Settings:
    """The configuration's own numbers; else those that the runtime has for this pod."""
    told, where, opinions = config.raw, "", _NO_OPINION[:1]
    if not any(looked_up(config.raw, each) is not None for each in _KEYS):
        told = taken(config.runtime, "bandwidth", dict, {}, "runtimeConfig.")
        where, opinions = "runtimeConfig.bandwidth.", _NO_OPINION
    for each in _REFUSED:
        if looked_up(told, each):
            raise CniError(Code.UNSUPPORTED_FIELD, f"{where}{each}: not supported by podwire's bandwidth")
    return Settings(_limit(told, "ingress", where, opinions), _limit(told, "egress", where, opinions))


def _limit(told: Object, way: str, where: str, opinions: tuple[int, ...]) -> Limit | None:
    rate, burst = _number(told, f"{way}Rate", where), _number(told, f"{way}Burst", where)
    if rate == 0:
        if burst not in opinions:
            raise CniError(Code.BAD_CONFIG, f"{where}{way}Burst: there is a burst, and no {way}Rate")
        return None
    if rate < 8:
        raise CniError(Code.BAD_CONFIG, f"{where}{way}Rate: {rate} bits per second are less than a byte")
    if burst // 8 >= _MOST:
        raise CniError(Code.BAD_CONFIG, f"{where}{way}Burst: {burst} bits are more than 4 GB")
    return Limit(rate, 0 if burst in opinions else burst)


def _number(told: Object, key: str, where: str) -> int:
    """The runtime's keys are in lower case already, whatever it wrote."""
    value = taken(told, key.lower() if where else key, int, 0, where)
    if value < 0:
        raise CniError(Code.BAD_CONFIG, f"{where}{key}: {value} is less than nothing")
    return value


def bucket(limit: Limit, mtu: int) -> Bucket:
    """A burst of less than one packet would let none of the largest pass, for ever: it is made so large."""
    rate, packet = limit.rate // 8, mtu + _HEADER
    burst = max(limit.burst // 8, packet) if limit.burst else max(int(rate * BURST), _FRAMES * packet)
    burst = min(burst, _MOST)
    return Bucket(rate, burst, min(int(rate * LATENCY) + burst, _MOST))
