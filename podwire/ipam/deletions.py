"""Recent DELs of a directory, by which an ADD is recognised that hung and goes on after its own DEL.

Such an ADD must not lease an address or make a link: nobody would send a DEL for it again. It was started before the
DEL ended; an ADD for the same ids that is sent afterwards starts later, and is served. Only the time of a DEL is kept.

On disk: a file of fixed size, a hash table in which a newer DEL replaces an older one with the same hash. So a DEL
costs one write, and nothing has to be removed. A slot has two checksums of the key and of the boot, and the time by the
clock that runs since the boot. Readers and writers hold the lock of the key.
"""

import errno
import os
import time
from functools import cache
from struct import Struct
from zlib import adler32, crc32

_SLOT = Struct("=IIQ")
_SLOTS = 1 << 14
TICK = 10**9 // os.sysconf("SC_CLK_TCK")
"""Nanoseconds: the unit in which the kernel has the start of a process."""


class Deletions:
    def __init__(self, path: str) -> None:
        self._path = path

    def note(self, key: str) -> None:
        """Notes that a DEL is done; called before its lock is released.

        Not on a full disk: a DEL must not fail there, and at worst a hanging ADD of this attachment is served.
        """
        slot, checksums = _hash(key)
        entry = _SLOT.pack(*checksums, time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(file, entry, slot)
            finally:
                os.close(file)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def is_noted(self, key: str, since: int = 0) -> bool:
        """Whether a DEL ended after a time, in nanoseconds since the boot, since which a whole tick has passed."""
        slot, checksums = _hash(key)
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            entry = os.pread(file, _SLOT.size, slot)
        finally:
            os.close(file)
        if len(entry) < _SLOT.size:
            return False
        *present, ended = _SLOT.unpack(entry)
        return tuple(present) == checksums and ended // TICK > since // TICK


@cache
def boot_id() -> str:
    """Returns the first 16 digits of the kernel's boot id."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().replace("-", "")[:16]


def _hash(key: str) -> tuple[int, tuple[int, int]]:
    """Returns an offset and two checksums."""
    data = f"{boot_id()} {key}".encode()
    return crc32(key.encode()) % _SLOTS * _SLOT.size, (crc32(data), adler32(data))
