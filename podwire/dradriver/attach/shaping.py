"""How much may pass an interface. Pure."""

from podwire.linux.values import Bucket

_BURST = 0.01
"""Seconds of the full rate that may leave at once after a pause: clocks of kernels are not finer than some of these."""
_LATENCY = 0.025
"""Seconds that a packet waits at most, beyond the burst, before others are dropped."""
_PACKETS = 4
"""At least these many of the largest fit, so that nothing is too big to pass."""
_OFFLOADED = 65536
"""What a link with segmentation offload takes for one packet."""
_MOST = 0xFFFFFFFF


def bucket(bits_per_second: int, mtu: int) -> Bucket:
    rate = max(bits_per_second // 8, 1)
    burst = max(round(rate * _BURST), _PACKETS * mtu, _OFFLOADED)
    return Bucket(rate, min(burst, _MOST), min(burst + round(rate * _LATENCY), _MOST))
