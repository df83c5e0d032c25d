"""What the links of a simulated namespace were told of their traffic. Nothing is held back."""

import errno

from podwire.linux import errors
from podwire.linux.memory.world import Space
from podwire.linux.values import Bucket


class MemoryTraffic:
    def __init__(self, space: Space) -> None:
        self._space = space

    def shape(self, index: int, bucket: Bucket) -> None:
        device = self._space.find(index, f"shape link {index}")
        if device.bucket is not None:
            raise errors.QdiscExists(errno.EEXIST, f"shape link {index}")
        device.bucket = bucket

    def shaped(self, index: int) -> Bucket | None:
        return next((each.bucket for each in self._space.devices.values() if each.index == index), None)

    def unshape(self, index: int) -> None:
        device = self._space.find(index, f"unshape link {index}")
        if device.bucket is None:
            raise errors.NoSuchQdisc(errno.ENOENT, f"unshape link {index}")
        device.bucket = None

    def redirect(self, index: int, to: int) -> None:
        operation = f"redirect link {index} to {to}"
        device, other = self._space.find(index, operation), self._space.find(to, operation)
        if device.detour is not None:
            raise errors.QdiscExists(errno.EEXIST, operation)
        device.detour = other.index

    def hooked(self, index: int) -> bool:
        return any(each.detour is not None for each in self._space.devices.values() if each.index == index)

    def redirected(self, index: int) -> int:
        found = next((each.detour for each in self._space.devices.values() if each.index == index), None)
        return found if found in self._space.devices else 0

    def unredirect(self, index: int) -> None:
        operation = f"end the redirection of link {index}"
        device = self._space.find(index, operation)
        if device.detour is None:
            raise errors.NoSuchQdisc(errno.ENOENT, operation)
        device.detour = None
