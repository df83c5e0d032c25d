"""Link speeds, by ethtool's oldest ioctl, which every driver supports."""

import ctypes
import fcntl
from _socket import AF_INET, SOCK_CLOEXEC, SOCK_DGRAM, socket
from struct import Struct
from types import TracebackType
from typing import Self

from podwire.linux.proc.namespaces import visit
from podwire.linux.values import Path

_ETHTOOL, _GET_SETTINGS = 0x8946, 1
_REQUEST = Struct("=16sQ16x")  # a link's name, where the settings are
_SETTINGS = Struct("=IIIH14xH14x")  # command, …, speed, …, its upper half
_UNKNOWN = (0, 0xFFFF, 0xFFFFFFFF)


class Speeds:
    """Speeds of the links of one namespace."""

    def __init__(self, netns: Path | int | None = None) -> None:
        """In the namespace at a path or behind a descriptor; None is the calling thread's own."""
        if netns is None:
            self._socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)
        else:
            with visit(netns):
                self._socket = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)

    def of(self, link: str) -> int | None:
        """Returns the speed in Mbit/s; None if it is unknown."""
        settings = ctypes.create_string_buffer(_SETTINGS.pack(_GET_SETTINGS, 0, 0, 0, 0), _SETTINGS.size)
        request = _REQUEST.pack(link.encode()[:15], ctypes.addressof(settings))
        try:
            fcntl.ioctl(self._socket.fileno(), _ETHTOOL, request)
        except OSError:
            return None
        *_, low, high = _SETTINGS.unpack_from(settings.raw)
        speed = int(high << 16 | low)
        return None if speed in _UNKNOWN else speed

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
